//! Work that other threads leave for the event loop's thread, and a function that
//! all of its parts use.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use refit_sys::trace::{Event, Tracee};
use rustix::io::Errno;

use crate::resume::{Resume, StopReason};

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
pub(super) struct Stopped {
    /// Each with the event that it stopped with, which is handled later. `None`: it was stopped
    /// already, has ended, or is blocked in `vfork`.
    pub(super) tasks: BTreeMap<u32, Option<Event>>,
    /// The time at which the first one was asked to stop.
    pub(super) since: Instant,
}

/// Lists tasks of a supervisor, each time anew.
pub(super) type TaskList<S> = Box<dyn FnMut(&S) -> Vec<u32> + Send>;

/// Work of a supervisor with stopped tasks.
pub(super) type StoppedWork<S> = Box<dyn FnOnce(&S, &Stopped) + Send>;

/// Work for a supervisor that is done while all tasks of a list are stopped.
pub(super) struct StopAllWork<S> {
    pub(super) process: u32,
    pub(super) list: TaskList<S>,
    pub(super) work: StoppedWork<S>,
}

/// Returns whether an error is this one of the system's.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
