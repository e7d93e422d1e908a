//! Work that other threads leave for the event loop's thread, and a function that
//! all of its parts use.

use std::io;

use refit_sys::trace::Tracee;
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

/// Work that is done while all threads of a process are stopped.
pub(super) type StopAllWork = Box<dyn FnOnce() + Send>;

/// Returns whether an error is this one of the system's.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
