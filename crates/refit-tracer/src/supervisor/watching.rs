//! Who is told of what the tasks of a tree do, and how.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};

use crate::supervisor::{Supervisor, lock};

impl Supervisor {
    /// Tells `watcher` of processes that have another memory, or none, since they have become other programs or have ended; in the thread
    /// that follows and before the process goes on: it must not wait for it.
    pub fn watch(&self, watcher: impl Fn(u32) + Send + Sync + 'static) {
        *lock(&self.watcher) = Some(Box::new(watcher));
    }

    /// Tells `watcher` of each new task in its first stop, in the thread that follows. The task stands there until an order for it comes if
    /// the answer is so.
    pub fn watch_births(&self, watcher: impl Fn(u32) -> bool + Send + Sync + 'static) {
        *lock(&self.births) = Some(Box::new(watcher));
    }

    /// Tells `watcher` of each task that is about to be given a signal which ends its process with an image of its memory, in the thread that
    /// follows. The task stands there until it is ordered to be given the signal if the answer is so.
    pub fn watch_dumps(&self, watcher: impl Fn(u32, i32) -> bool + Send + Sync + 'static) {
        *lock(&self.dumps) = Some(Box::new(watcher));
    }

    /// Tells of each task that is new, and of each process that is another program; is over when nobody is left.
    pub fn hear_of_programs(&self) -> Receiver<()> {
        let (tell, told) = mpsc::channel();
        let mut heard = lock(&self.heard);
        if !self.over.load(Ordering::Acquire) {
            *heard = Some(tell);
        }
        told
    }

    pub(super) fn tell_of_program(&self) {
        if let Some(heard) = &*lock(&self.heard) {
            // Nobody has to listen.
            let _ = heard.send(());
        }
    }

    /// Tells `exit_observer` of the first process when it is about to end and still has all its descriptors: in the thread that follows, and
    /// the process waits for it. A first thread that ends before others, or gives way to one that becomes another program, is told
    /// like the end; with another program the true end is told as well.
    pub fn before_end(&self, exit_observer: impl Fn(u32) + Send + Sync + 'static) {
        *lock(&self.exit_observer) = Some(Box::new(exit_observer));
    }

    /// Whether a new task stands until an order for it comes.
    pub(super) fn is_awaited(&self, task: u32) -> bool {
        lock(&self.births).as_ref().is_some_and(|tell| tell(task))
    }
}
