//! The thread move requests of a supervisor's threads, and the instance that answers them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, OnceLock};

use crate::request::ThreadMoveRequest;
use crate::supervisor::work::lock;

/// How far each thread's request is.
///
/// # Locks
/// Each is taken alone.
#[derive(Default)]
pub(super) struct MoveRequests {
    /// Unset until the instance answers requests.
    pub(super) answers: OnceLock<Answers>,
    /// By thread: the address of its call, until the thread stands before the call again.
    pub(super) stepping_back: Mutex<BTreeMap<u32, u64>>,
    /// By thread: the number of its last request.
    pub(super) last: Mutex<BTreeMap<u32, u64>>,
    /// The number of requests so far.
    pub(super) count: AtomicU64,
}

/// The instance that answers.
pub(super) struct Answers {
    /// The instance's number.
    pub(super) own: u16,
    /// Receives requests of programs that have no coordinator yet.
    pub(super) first_request: Box<dyn Fn(ThreadMoveRequest) + Send + Sync>,
}

impl MoveRequests {
    /// Drops all about a task that has ended.
    pub(super) fn forget(&self, task: u32) {
        lock(&self.stepping_back).remove(&task);
        lock(&self.last).remove(&task);
    }
}
