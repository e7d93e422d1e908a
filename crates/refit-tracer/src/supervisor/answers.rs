//! The thread move requests of a supervisor's threads, and the instance that answers them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::trace;

use crate::request::ThreadMoveRequest;
use crate::supervisor::records::MoveRequest;
use crate::supervisor::tasks::TaskTable;

/// The move requests of a supervisor's threads.
#[derive(Default)]
pub(super) struct MoveRequests {
    /// Unset until the instance answers requests.
    pub(super) answers: OnceLock<Answers>,
    /// The number of requests so far.
    count: AtomicU64,
}

/// The instance that answers.
pub(super) struct Answers {
    /// The instance's number.
    pub(super) own: u16,
    /// Receives requests of programs that have no coordinator yet.
    pub(super) first_request: Box<dyn Fn(ThreadMoveRequest) + Send + Sync>,
}

impl MoveRequests {
    /// Passes a request on, if the thread was being taken back for one. Returns the address of the
    /// call, and the number of the request.
    pub(super) fn pass_on(&self, tasks: &TaskTable, thread: u32) -> Option<(u64, u64)> {
        tasks.find(thread, |task| {
            let Some(MoveRequest::SteppingBack { at }) = task.move_request else { return None };
            // Relaxed: the number only has to differ from all others.
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            task.move_request = Some(MoveRequest::PassedOn { number });
            trace!(thread, number, "a request is passed on");
            Some((at, number))
        })
    }
}

/// Begins a request: the thread is taken back before its call at `at`.
pub(super) fn step_back(tasks: &TaskTable, thread: u32, at: u64) {
    trace!(thread, at, "a request steps back");
    tasks.entry(thread, |task| task.move_request = Some(MoveRequest::SteppingBack { at }));
}

/// Returns whether a request is the last one of its thread.
pub(super) fn is_last(tasks: &TaskTable, thread: u32, number: u64) -> bool {
    tasks.is(thread, |task| task.move_request == Some(MoveRequest::PassedOn { number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_void_as_soon_as_its_thread_asks_again() {
        let (requests, tasks) = (MoveRequests::default(), TaskTable::default());
        assert_eq!(requests.pass_on(&tasks, 7), None);
        step_back(&tasks, 7, 0x1000);
        let (at, first) = requests.pass_on(&tasks, 7).expect("it stands before its call");
        assert_eq!((at, requests.pass_on(&tasks, 7)), (0x1000, None));
        assert!(is_last(&tasks, 7, first));
        step_back(&tasks, 7, 0x1000);
        assert!(!is_last(&tasks, 7, first));
        let (_, second) = requests.pass_on(&tasks, 7).expect("it stands before its call");
        assert!(is_last(&tasks, 7, second) && !is_last(&tasks, 7, first));
        tasks.replace_program(7, 7);
        assert!(!is_last(&tasks, 7, second));
    }
}
