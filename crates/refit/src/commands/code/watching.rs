//! A program that is watched: found by its number or started for it, and followed to its end.

use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use refit_splice::process::Program;
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::interruption::sleep;
use crate::failure::Failure;

/// The interval at which the end of a program, of a time or Ctrl-C is checked.
const PROGRAM_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `watch` with a process: a running one, or the command, stopped before its first
/// instruction. With `end`, the command does not continue afterwards but is killed.
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
        // The command was started only to be watched.
        let _ = child.kill();
        let _ = child.wait();
        return watched;
    }
    match child.try_wait()? {
        Some(status) if !status.success() => Err(Failure::new(
            format!("watch {}", command[0]),
            format!("the command failed: {status}"),
            "see its output; the counts are above",
        )),
        Some(_) => Ok(()),
        None => {
            say!("refit: the command continues as process {id}");
            Ok(())
        }
    }
}

/// Starts a program that is stopped before its first instruction.
pub(crate) fn start(command: &[String]) -> Result<Child, Failure> {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]);
    refit_sys::launch::at_entry(&mut started).map_err(|e| {
        Failure::new(format!("run {}", command[0]), e.to_string(), "name a program that exists")
    })
}

/// Continues a program that was started by `start`.
pub(crate) fn go_on(program: &Program) {
    if let Some(process) = Pid::from_raw(program.id().cast_signed()) {
        // The program is stopped at its entry; if it was killed meanwhile, its end is detected
        // later.
        let _ = kill_process(process, Signal::CONT);
    }
}

/// The duration of watching.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// Whether the program was started for it, and is stopped.
    pub(crate) launched: bool,
    /// The maximum time.
    pub(crate) time: Option<Duration>,
    /// The interval at which results are printed.
    pub(crate) interval: Option<Duration>,
}

/// The next action while a program is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The polling interval has passed.
    Look,
    /// The printing interval has passed.
    Tell,
}

impl Course {
    /// Continues the programs, and waits for the end of all of them, the end of the time, or
    /// Ctrl-C.
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
            if !sleep(PROGRAM_POLL_INTERVAL, interrupted) {
                break;
            }
            each(Turn::Look)?;
        }
        Ok(())
    }
}
