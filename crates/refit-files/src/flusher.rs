//! Write-back in the background: what was written reaches the host some two seconds later.
//!
//! A file enters the queue when it becomes dirty and leaves it when it is written. It is written in small parts, each
//! a request of its own, so that nobody who waits for requests to end waits for a whole file.

use crate::inode::Inode;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long written data may wait.
const AGE: Duration = Duration::from_secs(2);
/// How much earlier than that a file is written when the thread is at it anyway: a thread that woke for each file
/// would take the processor from the programs each time.
const EARLY: Duration = Duration::from_millis(500);

/// Files to be written back, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Not kept alive: a file that the kernel forgets while something waits stays in the table, and of one that was
    /// removed the blocks have to become free.
    files: Mutex<VecDeque<(Instant, Weak<Inode>)>>,
    news: Condvar,
    ending: AtomicBool,
    /// What is in the queue now is written without waiting for its age.
    hurry: AtomicBool,
}

impl Queue {
    /// The file has something to be written back.
    pub(crate) fn add(&self, inode: &Arc<Inode>) {
        if !inode.queued.load(Relaxed) && !inode.queued.swap(true, Relaxed) {
            let mut files = self.files.lock();
            files.push_back((Instant::now(), Arc::downgrade(inode)));
            if files.len() == 1 {
                self.news.notify_one();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// Takes out all files, however old: they are about to be written.
    pub(crate) fn clear(&self) {
        let files = std::mem::take(&mut *self.files.lock());
        files.iter().filter_map(|(_, inode)| inode.upgrade()).for_each(|inode| leave(&inode));
    }

    /// Waits for the next file that is old enough; none when the queue has been closed.
    pub(crate) fn next(&self) -> Option<Arc<Inode>> {
        let mut files = self.files.lock();
        loop {
            if self.ending.load(Relaxed) {
                return None;
            }
            match files.front().map(|(since, _)| since.elapsed()) {
                None => {
                    self.hurry.store(false, Relaxed);
                    self.news.wait(&mut files);
                }
                Some(age) if age < AGE - EARLY && !self.hurry.load(Relaxed) => {
                    self.news.wait_for(&mut files, AGE.saturating_sub(age));
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

    /// Writes what waits now at once.
    pub(crate) fn hurry(&self) {
        let _files = self.files.lock();
        self.hurry.store(true, Relaxed);
        self.news.notify_all();
    }

    /// Ends [`Queue::next`].
    pub(crate) fn close(&self) {
        // Under the lock, so that it cannot fall between the test and the wait.
        let _files = self.files.lock();
        self.ending.store(true, Relaxed);
        self.news.notify_all();
    }
}

/// The mark goes before the file is written: a write that comes meanwhile queues the file again.
fn leave(inode: &Arc<Inode>) {
    inode.queued.store(false, std::sync::atomic::Ordering::SeqCst);
}
