//! Callbacks for events of a supervisor's tasks.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};

use crate::supervisor::Supervisor;

impl Supervisor {
    /// Has `watcher` called with each process that loses its memory because it executes another
    /// program or has ended; in the event loop's thread, before the process goes on. The callback
    /// must not wait for that thread.
    pub fn watch(&self, watcher: impl Fn(u32) + Send + Sync + 'static) {
        *self.watcher.lock() = Some(Box::new(watcher));
    }

    /// Has `watcher` called with each new task in its first stop, in the event loop's thread. If it
    /// returns true, the task stays stopped until it is ordered to go on.
    pub fn watch_births(&self, watcher: impl Fn(u32) -> bool + Send + Sync + 'static) {
        *self.births.lock() = Some(Box::new(watcher));
    }

    /// Has `watcher` called with each task that is about to receive a signal which ends its process
    /// with a core dump, in the event loop's thread. If it returns true, the task stays stopped
    /// until it is ordered to receive the signal.
    pub fn watch_dumps(&self, watcher: impl Fn(u32, i32) -> bool + Send + Sync + 'static) {
        *self.dumps.lock() = Some(Box::new(watcher));
    }

    /// Returns a channel that receives a message for each new task, and for each process that
    /// executes another program. The channel closes when no task is left.
    pub fn subscribe_programs(&self) -> Receiver<()> {
        let (sender, receiver) = mpsc::channel();
        let mut listener = self.program_listener.lock();
        if !self.over.load(Ordering::Acquire) {
            *listener = Some(sender);
        }
        receiver
    }

    pub(super) fn notify_program_listener(&self) {
        if let Some(listener) = &*self.program_listener.lock() {
            // The receiver may be gone.
            let _ = listener.send(());
        }
    }

    /// Has `exit_observer` called with the first process when that is about to end and still has
    /// all its descriptors; in the event loop's thread, while the process waits. The end of a first
    /// thread that exits before others, or is replaced by an `execve` of another thread, looks the
    /// same and is reported as well; after an `execve` the process's true end is reported again.
    pub fn before_end(&self, exit_observer: impl Fn(u32) + Send + Sync + 'static) {
        *self.exit_observer.lock() = Some(Box::new(exit_observer));
    }

    /// Returns whether a new task stays stopped until it is ordered to go on.
    pub(super) fn is_awaited(&self, task: u32) -> bool {
        self.births.lock().as_ref().is_some_and(|watcher| watcher(task))
    }
}
