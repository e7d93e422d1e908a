//! The thread move requests of a supervisor's threads, and the instance that answers them.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::trace;

use crate::request::ThreadMoveRequest;

/// The last request of each thread.
#[derive(Default)]
pub(super) struct MoveRequests {
    /// Unset until the instance answers requests.
    pub(super) answers: OnceLock<Answers>,
    /// By thread: its last request.
    last: Mutex<BTreeMap<u32, State>>,
    /// The number of requests so far.
    count: AtomicU64,
}

/// The state of a thread's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The thread is being taken back before its call, which has this address.
    SteppingBack { at: u64 },
    /// The thread stood before its call, and the request with this number was passed on.
    PassedOn { number: u64 },
}

/// The instance that answers.
pub(super) struct Answers {
    /// The instance's number.
    pub(super) own: u16,
    /// Receives requests of programs that have no coordinator yet.
    pub(super) first_request: Box<dyn Fn(ThreadMoveRequest) + Send + Sync>,
}

impl MoveRequests {
    /// Begins a request: the thread is taken back before its call at `at`.
    pub(super) fn step_back(&self, thread: u32, at: u64) {
        trace!(thread, at, "a request steps back");
        self.last.lock().insert(thread, State::SteppingBack { at });
    }

    /// Passes a request on, if the thread was being taken back for one. Returns the address of the
    /// call, and the number of the request.
    pub(super) fn pass_on(&self, thread: u32) -> Option<(u64, u64)> {
        let mut last = self.last.lock();
        let state = last.get_mut(&thread)?;
        let State::SteppingBack { at } = *state else { return None };
        // Relaxed: the number only has to differ from all others.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        *state = State::PassedOn { number };
        trace!(thread, number, "a request is passed on");
        Some((at, number))
    }

    /// Returns whether a request is the last one of its thread.
    pub(super) fn is_last(&self, thread: u32, number: u64) -> bool {
        self.last.lock().get(&thread) == Some(&State::PassedOn { number })
    }

    /// Drops the request of a task that has ended, or executes another program.
    pub(super) fn forget(&self, task: u32) {
        self.last.lock().remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_void_as_soon_as_its_thread_asks_again() {
        let requests = MoveRequests::default();
        assert_eq!(requests.pass_on(7), None);
        requests.step_back(7, 0x1000);
        let (at, first) = requests.pass_on(7).expect("it stands before its call");
        assert_eq!((at, requests.pass_on(7)), (0x1000, None));
        assert!(requests.is_last(7, first));
        requests.step_back(7, 0x1000);
        assert!(!requests.is_last(7, first));
        let (_, second) = requests.pass_on(7).expect("it stands before its call");
        assert!(requests.is_last(7, second) && !requests.is_last(7, first));
        requests.forget(7);
        assert!(!requests.is_last(7, second));
    }
}
