//! The tasks of a program and of all that it starts.
//!
//! One thread follows ([`Tree::follow`]), any other may ask. A task is in the tree from its first instruction until its
//! parent can learn of its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use refit_sys::follow::{Event, Follower};

use crate::process::{self, Process};

/// The tasks of a tree.
#[derive(Debug, Default)]
pub struct Tree {
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    /// The process of each task, as far as it has been asked for.
    live: BTreeMap<u32, Option<u32>>,
    /// How many there have been.
    begun: u64,
}

impl Tree {
    /// Follows the tree of a process that has one thread, until all of it has ended; `ready` is called when nothing can
    /// escape any more. If this thread ends before that, the kernel kills the tree.
    ///
    /// # Errors
    /// It cannot be followed (`ESRCH`, `EPERM`); what the kernel says afterwards.
    pub fn follow(&self, process: u32, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut follower = Follower::begin(process)?;
        self.tasks().add(process);
        ready()?;
        while let Some(event) = follower.wait()? {
            self.tasks().take(event);
        }
        Ok(())
    }

    /// How many tasks there have been so far.
    pub fn begun(&self) -> u64 {
        self.tasks().begun
    }

    /// Its processes now, by number.
    pub fn processes(&self) -> Vec<Process> {
        let known = self.tasks().live.clone();
        let found: BTreeMap<_, _> = known
            .into_iter()
            .filter_map(|(task, process)| {
                Some((task, process.or_else(|| process::process_of(task))?))
            })
            .collect();
        self.tasks().remember(&found);
        let processes: BTreeSet<_> = found.into_values().collect();
        processes.into_iter().filter_map(process::look).collect()
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // Each change is one operation on a map.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks {
    fn add(&mut self, task: u32) {
        if self.live.insert(task, None).is_none() {
            self.begun += 1;
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Began { task } => self.add(task),
            Event::Ended { task, .. } => drop(self.live.remove(&task)),
            Event::Exec { task, was } => {
                // All other threads of the process tell of their ends, but the one whose number it takes.
                self.live.remove(&was);
                self.live.insert(task, None);
            }
        }
    }

    fn remember(&mut self, found: &BTreeMap<u32, u32>) {
        for (task, process) in found {
            if let Some(known) = self.live.get_mut(task) {
                *known = Some(*process);
            }
        }
    }
}
