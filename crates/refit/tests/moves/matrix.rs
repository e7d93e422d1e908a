//! Runs programs and compares their output.

use std::fmt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use crate::modes::{Hosts, Mode, known};
use crate::programs::Program;
use crate::running::run;
use crate::world::World;

/// The number of programs that run at a time.
const AT_A_TIME: usize = 2;

/// A program that behaved differently than alone.
#[derive(Debug)]
pub(crate) struct Failure {
    program: String,
    mode: String,
    hosts: Hosts,
    what: String,
}

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    pub(crate) failures: Vec<Failure>,
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |cells: Vec<&str>| cells.into_iter().map(str::len).max().unwrap_or(0);
        let program = column(self.failures.iter().map(|one| &*one.program).collect()).max(7);
        let mode = column(self.failures.iter().map(|one| &*one.mode).collect()).max(4);
        writeln!(f, "{:program$}  {:mode$}  HOSTS     WHAT", "PROGRAM", "MODE")?;
        for one in &self.failures {
            let hosts = one.hosts.name();
            writeln!(f, "{:program$}  {:mode$}  {hosts:8}  {}", one.program, one.mode, one.what)?;
        }
        Ok(())
    }
}

impl Matrix {
    /// Runs programs in one mode at one place, `REFIT_MOVES_ROUNDS` times.
    pub(crate) fn fill(&mut self, mode: &Mode, hosts: Hosts, programs: &[Program]) {
        let rounds = std::env::var("REFIT_MOVES_ROUNDS").ok().and_then(|text| text.parse().ok());
        let fails = |program: &str, what: String| Failure {
            program: program.to_owned(),
            mode: mode.name.clone(),
            hosts,
            what,
        };
        let world = match World::new(mode, hosts) {
            Ok(world) => world,
            Err(why) => return self.failures.push(fails("all", why)),
        };
        let begun = Instant::now();
        let (next, pushes) = (AtomicU32::new(0), AtomicU64::new(0));
        let count = u32::try_from(programs.len()).expect("some") * rounds.unwrap_or(1);
        let failures = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    for turn in std::iter::repeat_with(|| next.fetch_add(1, Relaxed))
                        .take_while(|&t| t < count)
                    {
                        let program = &programs[turn as usize % programs.len()];
                        if let Err(what) = compare(&world, program, &pushes) {
                            let known = known(mode, hosts, &program.name);
                            // Also printed at once, for users who wait for the rest.
                            let why = known.map(|why| format!(" (known: {why})"));
                            let (name, why) = (&program.name, why.unwrap_or_default());
                            println!("{name}, {}, {}{why}: {what}", mode.name, hosts.name());
                            if known.is_some() {
                                continue;
                            }
                            failures.lock().push(fails(&program.name, what));
                        }
                    }
                });
            }
        });
        let failed = failures.into_inner();
        let (seconds, moved) = (begun.elapsed().as_secs(), pushes.into_inner());
        let pushed = if world.pushes() { format!(", {moved} moves") } else { String::new() };
        println!(
            "{}, {}: {count} runs, {} differ, {seconds} s{pushed}",
            mode.name,
            hosts.name(),
            failed.len()
        );
        self.failures.extend(failed);
        if world.pushes() && moved == 0 {
            self.failures.push(fails("all", "nothing was moved".to_owned()));
        }
        let logs = world.logs();
        if !logs.is_empty() {
            self.failures.push(fails("all", format!("an instance says: {logs}")));
        }
    }
}

/// Runs a program alone and in a world; returns the difference.
fn compare(world: &World, program: &Program, pushes: &AtomicU64) -> Result<(), String> {
    let file = program.build()?;
    // The output does not depend on the duration of the run.
    let alone = run(Command::new(&file).env("MOVES_MS", "0"), None);
    let (alone, _) = alone.map_err(|why| format!("alone: {why}"))?;
    if alone.code != 0 {
        return Err(format!("alone: {alone}"));
    }
    let (ran, pushed) = run(&mut world.command(&file), Some(world))?;
    pushes.fetch_add(pushed, Relaxed);
    if ran == alone { Ok(()) } else { Err(format!("{ran}; alone {alone}")) }
}
