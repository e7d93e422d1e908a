//! What a crate above the tracer decides about threads that the tracer follows.
//!
//! The event loop asks its hook before it acts on an event, and follows the answer. It calls the hook while the task that it
//! names is stopped, so a method must return without waiting for a tracee, nor for another thread that waits for the
//! event loop: whatever takes longer is answered with [`Resume::Stay`], and decided later by
//! [`Supervisor::order_kept`](crate::Supervisor::order_kept).

use std::ops::Deref;
use std::sync::Arc;

use refit_sys::trace::{Event, Tracee};

use crate::request::ThreadMoveRequest;
use crate::resume::Resume;

/// Decides about threads whose instructions run elsewhere, and is notified of what happens to all others.
///
/// The methods' defaults are those of a tracer under which nothing moves.
pub trait TracerHook: Send + Sync {
    /// Returns how `tracee`, stopped at `event`, goes on, or `None` if the event means what it means to any tracee.
    fn on_event(&self, tracee: &Tracee, event: Event) -> Option<Resume> {
        let _ = (tracee, event);
        None
    }

    /// Returns how a thread goes on about which nothing else was decided.
    fn resume(&self, thread: u32) -> Resume {
        let _ = thread;
        Resume::GoOn
    }

    /// Returns whether the hook decides about a thread. What interrupts such a thread concerns the hook, not the call that
    /// the thread is in.
    fn is_tracked(&self, thread: u32) -> bool {
        let _ = thread;
        false
    }

    /// Returns whether pages of programs can be elsewhere, so that reading a tracee's memory can fail for a moment.
    fn has_remote_pages(&self) -> bool {
        false
    }

    /// A new task has stopped for the first time. Returns whether it stays stopped until the hook orders otherwise.
    fn task_started(&self, task: u32) -> bool {
        let _ = task;
        false
    }

    /// Returns whether a process was created, and the hook has not let it begin.
    fn is_starting(&self, process: u32) -> bool {
        let _ = process;
        false
    }

    /// A thread is about to exit. Returns whether it stays until [`Supervisor::let_end`](crate::Supervisor::let_end).
    fn thread_exits(&self, thread: u32) -> bool {
        let _ = thread;
        false
    }

    /// A task has ended. `cleared` is the address of the word that the kernel was to clear then (`CLONE_CHILD_CLEARTID`).
    fn task_ended(&self, task: u32, cleared: Option<u64>) {
        let _ = (task, cleared);
    }

    /// A process executes another program, called by the thread whose number was `former`.
    fn program_replaced(&self, process: u32, former: u32) {
        let _ = (process, former);
    }

    /// A thread asks to run elsewhere. Returns whether the hook answers it
    /// ([`Supervisor::answer`](crate::Supervisor::answer)).
    fn move_requested(&self, request: ThreadMoveRequest) -> bool {
        let _ = request;
        false
    }

    /// Returns whether a filter that the hook has installed reports this system call with `message`. What no filter of
    /// refit's reports is the program's own `SECCOMP_RET_TRACE`.
    fn reports(&self, message: u16, number: i64, arguments: &[u64; 6]) -> bool {
        let _ = (message, number, arguments);
        false
    }
}

/// The hook of a supervisor under which nothing moves.
struct NothingMoves;

impl TracerHook for NothingMoves {}

/// A supervisor's hook.
pub(crate) struct Hook(Arc<dyn TracerHook>);

impl Hook {
    pub(crate) fn new(hook: Arc<dyn TracerHook>) -> Self {
        Self(hook)
    }
}

impl Default for Hook {
    fn default() -> Self {
        Self(Arc::new(NothingMoves))
    }
}

impl Deref for Hook {
    type Target = dyn TracerHook;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
