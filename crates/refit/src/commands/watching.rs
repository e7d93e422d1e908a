//! A program that is watched: found by its number or started for it, and followed to its end.

use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use refit_splice::process::Program;
use rustix::process::{Pid, Signal, kill_process};

use super::sleep;
use crate::failure::Failure;

/// How soon the end of a program, of a time or Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Has `watch` do its work with a process: one that runs, or the command, which stands before its first instruction. `end` says that the
/// command is not to go on afterwards.
pub(crate) fn with(
    process: Option<u32>,
    command: &[String],
    end: bool,
    watch: impl FnOnce(u32) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut child = match process {
        Some(process) => return watch(process),
        None => start(command)?,
    };
    let id = child.id();
    let watched = watch(id);
    if watched.is_err() || end {
        // It was started to be watched only.
        let _ = child.kill();
        let _ = child.wait();
        return watched;
    }
    match child.try_wait()? {
        Some(status) if !status.success() => Err(Failure::new(
            format!("watch {}", command[0]),
            format!("the command failed: {status}"),
            "see what it said; what was counted stands above",
        )),
        Some(_) => Ok(()),
        None => {
            say!("refit: the command goes on as process {id}");
            Ok(())
        }
    }
}

/// Starts a program that waits for us before its first instruction.
fn start(command: &[String]) -> Result<Child, Failure> {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]);
    refit_sys::launch::at_entry(&mut started).map_err(|e| {
        Failure::new(format!("run {}", command[0]), e.to_string(), "name a program that is there")
    })
}

/// Lets a program that was started for us begin.
pub(crate) fn go_on(program: &Program) {
    if let Some(process) = Pid::from_raw(program.id().cast_signed()) {
        // It stands at its entry; if it was killed meanwhile, its end is seen later.
        let _ = kill_process(process, Signal::CONT);
    }
}

/// For how long a program is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// Whether it was started for it, and waits.
    pub(crate) launched: bool,
    /// How long at most.
    pub(crate) time: Option<Duration>,
    /// How often what was seen so far is told.
    pub(crate) interval: Option<Duration>,
}

/// What is to be done while a program is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A moment has gone by.
    Look,
    /// The interval has.
    Tell,
}

impl Course {
    /// Lets the programs go on, and waits for the end: that of all, that of the time, or Ctrl-C.
    pub(crate) fn follow(
        self,
        programs: &[Program],
        interrupted: &AtomicBool,
        mut each: impl FnMut(Turn) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.launched {
            programs.iter().for_each(go_on);
        }
        let after = |time: Option<Duration>| time.and_then(|time| Instant::now().checked_add(time));
        let (end, mut next) = (after(self.time), after(self.interval));
        while end.is_none_or(|end| Instant::now() < end) && !programs.iter().all(Program::ended) {
            if next.is_some_and(|next| Instant::now() >= next) {
                each(Turn::Tell)?;
                next = after(self.interval);
            }
            if !sleep(LOOK, interrupted) {
                break;
            }
            each(Turn::Look)?;
        }
        Ok(())
    }
}
