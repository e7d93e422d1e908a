//! Decisions of a crate above the tracer about threads that the tracer follows.
//!
//! The event loop asks its hook before it acts on an event, and follows the answer. It calls the
//! hook while the task in question is stopped, so a method must return without waiting for a
//! tracee, or for another thread that waits for the event loop. A decision that takes longer is
//! answered with [`Resume::Stay`], and made later by
//! [`Supervisor::order_kept`](crate::Supervisor::order_kept).

use std::ops::Deref;
use std::sync::Arc;

use refit_sys::trace::{Event, Tracee};

use crate::request::ThreadMoveRequest;
use crate::resume::Resume;

/// Decides about threads whose instructions run elsewhere, and is notified of what happens to all
/// others.
///
/// By default the methods answer as in a tracer under which nothing moves.
pub trait TracerHook: Send + Sync {
    /// Returns how `tracee`, stopped at `event`, goes on, or `None` if the event means what it
    /// means to any tracee.
    fn on_event(&self, tracee: &Tracee, event: Event) -> Option<Resume> {
        let _ = (tracee, event);
        None
    }

    /// Returns how a thread goes on if nothing else was decided.
    fn resume(&self, thread: u32) -> Resume {
        let _ = thread;
        Resume::Continue
    }

    /// Returns whether the hook decides about a thread. An interruption of such a thread concerns
    /// the hook, not the call that the thread is in.
    fn is_tracked(&self, thread: u32) -> bool {
        let _ = thread;
        false
    }

    /// Returns whether the instructions of a thread run elsewhere.
    fn runs_elsewhere(&self, thread: u32) -> bool {
        let _ = thread;
        false
    }

    /// Returns whether pages of programs can be at another node, so that reading a tracee's memory
    /// can fail for a moment.
    fn has_remote_pages(&self) -> bool {
        false
    }

    /// Called at the first stop of a new task. Returns whether the task stays stopped until the
    /// hook orders otherwise.
    fn task_started(&self, task: u32) -> bool {
        let _ = task;
        false
    }

    /// Returns whether a process was created, and the hook has not let it begin.
    fn is_starting(&self, process: u32) -> bool {
        let _ = process;
        false
    }

    /// Called when a thread is about to exit. Returns whether it stays stopped until
    /// [`Supervisor::let_exit`](crate::Supervisor::let_exit).
    fn thread_exits(&self, thread: u32) -> bool {
        let _ = thread;
        false
    }

    /// Called when a task has ended. `cleared` is the address of the word that the kernel had to
    /// clear then (`CLONE_CHILD_CLEARTID`).
    fn task_ended(&self, task: u32, cleared: Option<u64>) {
        let _ = (task, cleared);
    }

    /// Called when a process executes another program; `former` is the number of the thread that
    /// called `execve`.
    fn program_replaced(&self, process: u32, former: u32) {
        let _ = (process, former);
    }

    /// Called when a thread asks to run elsewhere. Returns whether the hook answers the request
    /// ([`Supervisor::answer`](crate::Supervisor::answer)).
    fn move_requested(&self, request: ThreadMoveRequest) -> bool {
        let _ = request;
        false
    }

    /// Returns whether a filter that the hook has installed reports this system call with
    /// `message`. A report that no filter of refit's makes is the program's own
    /// `SECCOMP_RET_TRACE`.
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
