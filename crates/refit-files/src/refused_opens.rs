//! The opens that were refused once, so that the kernel looks up the name again.

use crate::inode::Place;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The threads whose open was refused with `ESTALE`, upon which the kernel looks up the name and
/// opens the file once more. A second refusal would be returned to the program.
#[derive(Debug, Default)]
pub(crate) struct RefusedOpens {
    /// The target of each thread, the latest last.
    threads: Mutex<Vec<(u32, OpenTarget)>>,
    /// The number of these threads. It is usually zero, in which case an open need not lock.
    count: AtomicUsize,
}

/// The target of an open. The second attempt can concern another inode of the same name, or the
/// looked-up name of the same inode, which has several names.
#[derive(Clone, Debug)]
pub(crate) struct OpenTarget {
    pub(crate) node: u64,
    pub(crate) place: Place,
}

/// The maximum number of threads that are remembered. The oldest are forgotten first.
const MAX_REFUSED: usize = 256;

impl RefusedOpens {
    /// Returns whether to refuse this thread's open, which is `false` if it was just refused, and
    /// remembers the refusal.
    pub(crate) fn refuse(&self, thread: u32, opened: &OpenTarget) -> bool {
        // The kernel sends 0 for every thread of another namespace.
        if thread == 0 || self.came_back(thread, opened) {
            return false;
        }
        let mut threads = self.threads.lock();
        if threads.len() == MAX_REFUSED {
            threads.remove(0);
        }
        threads.push((thread, opened.clone()));
        self.count.store(threads.len(), Relaxed);
        true
    }

    /// Returns whether any thread is expected to open again.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Records that a thread opens a file or finds that there is none. Returns whether this open
    /// was refused before.
    pub(crate) fn came_back(&self, thread: u32, opened: &OpenTarget) -> bool {
        if !self.any() {
            return false;
        }
        let mut threads = self.threads.lock();
        let found = threads.iter().position(|(refused, _)| *refused == thread);
        // If the thread was refused another file, it has not opened that one again.
        let same = found.is_some_and(|at| {
            let (_, before) = threads.remove(at);
            before.node == opened.node || before.place == opened.place
        });
        self.count.store(threads.len(), Relaxed);
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_not_refused_twice_in_a_row() {
        let refused = RefusedOpens::default();
        let opened = |node, name: &str| {
            let place = Place { parent: 1, name: name.into() };
            OpenTarget { node, place }
        };
        let (a, b) = (opened(10, "a"), opened(20, "b"));
        assert!(refused.refuse(7, &a) && refused.refuse(8, &a));
        assert!(!refused.refuse(7, &a));
        assert!(refused.refuse(7, &a) && !refused.refuse(7, &opened(30, "a")));
        assert!(refused.refuse(7, &a) && !refused.refuse(7, &opened(10, "other name")));
        assert!(refused.refuse(7, &a) && refused.refuse(7, &b));
        assert!(refused.came_back(7, &b) && !refused.came_back(7, &b));
        assert!(!refused.refuse(8, &a) && !refused.refuse(0, &a));
        for thread in 1..1000 {
            assert!(refused.refuse(thread, &a));
        }
        assert_eq!(refused.threads.lock().len(), MAX_REFUSED);
    }
}
