//! Write-back in the background: written data reaches the host about two seconds later.
//!
//! A file enters the queue when it becomes dirty and leaves it when it is written back. It is
//! written in small parts, each of which is a request of its own, so that waiting for requests to
//! end never means waiting for a whole file.

use crate::inode::Inode;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The maximum age of written data at its write-back.
const WRITE_BACK_DELAY: Duration = Duration::from_secs(2);
/// The time by which a file may be written back early when the thread is running anyway. Waking up
/// for each file would take the processor from the programs each time.
const WRITE_BACK_SLACK: Duration = Duration::from_millis(500);

/// The files to be written back, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The references are weak. A file that the kernel forgets while data is waiting stays in the
    /// table, and the blocks of a removed file must become free.
    files: Mutex<VecDeque<(Instant, Weak<Inode>)>>,
    changed: Condvar,
    ending: AtomicBool,
    /// Whether the files now in the queue are written regardless of their age.
    hurry: AtomicBool,
}

impl Queue {
    /// Adds a file that has become dirty.
    pub(crate) fn add(&self, inode: &Arc<Inode>) {
        if !inode.queued.load(Relaxed) && !inode.queued.swap(true, Relaxed) {
            let mut files = self.files.lock();
            files.push_back((Instant::now(), Arc::downgrade(inode)));
            if files.len() == 1 {
                self.changed.notify_one();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// Removes all files regardless of their age, because they are about to be written.
    pub(crate) fn clear(&self) {
        let files = std::mem::take(&mut *self.files.lock());
        files.iter().filter_map(|(_, inode)| inode.upgrade()).for_each(|inode| leave(&inode));
    }

    /// Waits for the next file that is due. Returns `None` when the queue has been closed.
    pub(crate) fn next(&self) -> Option<Arc<Inode>> {
        let mut files = self.files.lock();
        loop {
            if self.ending.load(Relaxed) {
                return None;
            }
            match files.front().map(|(since, _)| since.elapsed()) {
                None => {
                    self.hurry.store(false, Relaxed);
                    self.changed.wait(&mut files);
                }
                Some(age)
                    if age < WRITE_BACK_DELAY - WRITE_BACK_SLACK && !self.hurry.load(Relaxed) =>
                {
                    self.changed.wait_for(&mut files, WRITE_BACK_DELAY.saturating_sub(age));
                }
                Some(_) => {
                    let inode = files.pop_front().and_then(|(_, inode)| inode.upgrade());
                    if let Some(inode) = inode {
                        leave(&inode);
                        return Some(inode);
                    }
                }
            }
        }
    }

    /// Makes the files now in the queue due at once.
    pub(crate) fn hurry(&self) {
        let _files = self.files.lock();
        self.hurry.store(true, Relaxed);
        self.changed.notify_all();
    }

    /// Ends [`Queue::next`].
    pub(crate) fn close(&self) {
        // Notifies with the lock held, so that the notification cannot fall between the check and
        // the wait.
        let _files = self.files.lock();
        self.ending.store(true, Relaxed);
        self.changed.notify_all();
    }
}

/// Removes the mark of a file before it is written, so that a write that comes meanwhile queues the
/// file again.
fn leave(inode: &Arc<Inode>) {
    inode.queued.store(false, std::sync::atomic::Ordering::SeqCst);
}
