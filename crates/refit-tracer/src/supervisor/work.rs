//! Work that other threads leave for the event loop's thread, and a function that
//! all of its parts use.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use refit_sys::trace::{Event, Tracee};
use rustix::io::Errno;

use crate::resume::{Resume, StopReason};
use crate::supervisor::Supervisor;

/// Work with one stopped tracee. Returns how the tracee goes on, and a notification to send once
/// it does.
pub(super) type Work = Box<dyn FnOnce(&mut Tracee, StopReason) -> (Resume, Tell) + Send>;

/// Notifies the thread that waits for the work, if one does.
pub(super) type Tell = Option<Box<dyn FnOnce() + Send>>;

/// Work with one task.
pub(super) struct SupervisorRequest {
    pub(super) task: u32,
    pub(super) work: Work,
    /// The work is dropped unless the task is [kept](Resume::Stay) already.
    pub(super) kept_only: bool,
}

/// Tasks that are stopped at once.
pub(super) struct Stopped<'s> {
    pub(super) supervisor: &'s Supervisor,
    /// Each with the event that it stopped with, which is handled later. `None`: it was stopped
    /// already, has ended, or is blocked in `vfork`.
    pub(super) tasks: BTreeMap<u32, Option<Event>>,
    /// The time at which the first one was asked to stop.
    pub(super) since: Instant,
}

/// Lists tasks, each time anew.
pub(super) type TaskList = Box<dyn FnMut(&Supervisor) -> Vec<u32> + Send>;

/// Work that is done while all tasks of a list are stopped.
pub(super) struct StopAllWork {
    pub(super) process: u32,
    pub(super) list: TaskList,
    pub(super) work: Box<dyn FnOnce(&Stopped<'_>) + Send>,
}

/// Returns whether an error is this one of the system's.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
