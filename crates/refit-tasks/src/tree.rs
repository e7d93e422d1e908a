//! The tasks of a program and of all that it starts.
//!
//! One thread follows ([`Tree::follow`]), any other may ask. A task is in the tree from its first instruction until its
//! parent can learn of its end.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use refit_sys::trace::{self, Event, Held, Options};
use rustix::io::Errno;

use crate::process::{self, Process};

/// What is told of each task, which those that it makes inherit; and that all end with who follows.
const FOLLOWED: Options = Options::FORK
    .union(Options::VFORK)
    .union(Options::CLONE)
    .union(Options::EXEC)
    .union(Options::EXIT_KILL);

/// The tasks of a tree.
#[derive(Debug, Default)]
pub struct Tree {
    tasks: Mutex<BTreeSet<u32>>,
}

impl Tree {
    /// Follows the tree of a process that has one thread, until all of it has ended; `ready` is called when nothing can
    /// escape any more. If this thread ends before that, the kernel kills the tree.
    ///
    /// # Errors
    /// It cannot be followed (`ESRCH`, `EPERM`); what the kernel says afterwards.
    pub fn follow(&self, process: u32, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        Held::seize_with(process, FOLLOWED)?.leave();
        self.tasks().insert(process);
        ready()?;
        loop {
            match trace::next(true) {
                Ok(Some((task, event))) => self.take(task, event)?,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nobody is left.
                Err(error) if is(&error, Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes note of an event, and lets the task go on as it would if nobody followed it.
    fn take(&self, task: u32, event: Event) -> io::Result<()> {
        let held = Held::of(task);
        let goes_on = match event {
            Event::Signal(signal) => held.resume(signal),
            // By job control: until somebody continues it.
            Event::Stopped(_) => held.leave_stopped(),
            Event::Exited(_) | Event::Killed(_) => {
                self.tasks().remove(&task);
                Ok(())
            }
            Event::Interrupted => {
                self.tasks().insert(task);
                held.resume(0)
            }
            Event::Exec { former } => {
                // All other threads of the process tell of their ends, but the one whose number it takes.
                self.tasks().remove(&former);
                self.tasks().insert(task);
                held.resume(0)
            }
            // It has made a task, which tells of itself.
            _ => held.resume(0),
        };
        held.leave();
        match goes_on {
            // Killed meanwhile: its end is the next that is told.
            Err(error) if !is(&error, Errno::SRCH) => Err(error),
            _ => Ok(()),
        }
    }

    /// Its processes now, by number.
    pub fn processes(&self) -> Vec<Process> {
        let tasks = self.tasks().clone();
        let processes: BTreeSet<_> = tasks.into_iter().filter_map(process::process_of).collect();
        processes.into_iter().filter_map(process::look).collect()
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // Each change is one operation on a set.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is(error: &io::Error, which: Errno) -> bool {
    error.raw_os_error() == Some(which.raw_os_error())
}
