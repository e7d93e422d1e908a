//! The programs of one supervisor, and which of their threads run elsewhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use refit_sys::trace::Tracee;
use refit_tracer::{Resume, Shown, StopReason, Supervisor, TracerHook};
use rustix::io::Errno;

use crate::origin::thread_table::{CoordinatorId, ThreadTable};

/// A supervisor, with the table that is its hook.
pub(crate) struct ProgramTree {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) threads: Arc<ThreadTable>,
    /// Whether threads that run elsewhere come back for each of their calls.
    pub(crate) calls_here: bool,
}

impl ProgramTree {
    /// A tree of programs that can move or not, which are told of the processors that `shown` says.
    pub(crate) fn new(movable: bool, shown: Option<Shown>, calls_here: bool) -> Arc<Self> {
        let threads = Arc::<ThreadTable>::default();
        let mut supervisor = if movable { Supervisor::of_movable() } else { Supervisor::default() };
        supervisor.set_hook(Arc::clone(&threads) as Arc<dyn TracerHook>);
        shown.into_iter().for_each(|shown| supervisor.show_processors(shown));
        Arc::new(Self { supervisor: Arc::new(supervisor), threads, calls_here })
    }

    /// Mailbox, as [`Supervisor::order`], work with a thread that a coordinator decides about.
    ///
    /// # Errors
    /// As that; `ESRCH` also where the thread is none of the coordinator's any more, since its process executes another
    /// program. It then goes on, or stays, as it would without.
    pub(crate) fn order_of<R: Send + 'static>(
        self: &Arc<Self>,
        coordinator: CoordinatorId,
        task: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee, StopReason) -> (R, Resume) + Send + 'static,
    ) -> io::Result<R> {
        let tree = Arc::clone(self);
        let own = move |held: &mut Tracee, stands| {
            if let Some(after) = tree.resume_of_other(coordinator, held.thread(), stands) {
                return (Err(Errno::SRCH.into()), after);
            }
            let (done, after) = work(held, stands);
            (Ok(done), after)
        };
        self.supervisor.order(task, within, own)?
    }

    /// Returns how a thread goes on that a coordinator orders something of, and that is none of its any more; `None` if it
    /// still is.
    pub(crate) fn resume_of_other(
        &self,
        coordinator: CoordinatorId,
        task: u32,
        stands: StopReason,
    ) -> Option<Resume> {
        match stands {
            _ if self.threads.is_of(task, coordinator) => None,
            // Somebody else decides about it.
            StopReason::Kept => Some(Resume::Stay),
            _ => Some(self.threads.plainly(task)),
        }
    }
}
