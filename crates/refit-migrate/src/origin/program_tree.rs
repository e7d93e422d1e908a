//! The programs of one supervisor, and which of their threads run elsewhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use refit_sys::trace::Tracee;
use refit_tracer::{Resume, Shown, StopReason, Supervisor, TracerHook};
use rustix::io::Errno;

use crate::origin::thread_table::ThreadTable;
use crate::origin::tracer_event::CoordinatorId;

/// The time within which a thread is reached that is stopped, or waits in code of refit's: as long
/// as a node can be busy with other work, since without the order the thread would be stopped
/// forever.
pub(crate) const THREAD_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A supervisor, and the thread table that is its hook.
pub(crate) struct ProgramTree {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) threads: Arc<ThreadTable>,
    /// Whether threads that run elsewhere return for each of their calls.
    pub(crate) calls_here: bool,
}

impl ProgramTree {
    /// Returns the tree of programs that can move or not, which see the processors in
    /// `shown`.
    pub(crate) fn new(movable: bool, shown: Option<Shown>, calls_here: bool) -> Arc<Self> {
        let threads = Arc::<ThreadTable>::default();
        let mut supervisor = if movable { Supervisor::of_movable() } else { Supervisor::default() };
        supervisor.set_hook(Arc::clone(&threads) as Arc<dyn TracerHook>);
        shown.into_iter().for_each(|shown| supervisor.show_processors(shown));
        Arc::new(Self { supervisor: Arc::new(supervisor), threads, calls_here })
    }

    /// Orders work with a thread that a coordinator decides about, as [`Supervisor::order`] does.
    ///
    /// # Errors
    /// Those of [`Supervisor::order`]; `ESRCH` also if the thread is none of the coordinator's any
    /// more, since its process executes another program. The thread then goes on, or stays, as it
    /// would without the order.
    pub(crate) fn order_of<R: Send + 'static>(
        self: &Arc<Self>,
        coordinator: CoordinatorId,
        task: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee, StopReason) -> (R, Resume) + Send + 'static,
    ) -> io::Result<R> {
        let tree = Arc::clone(self);
        let own = move |tracee: &mut Tracee, reason| {
            if let Some(resume) = tree.resume_of_other(coordinator, tracee.thread(), reason) {
                return (Err(Errno::SRCH.into()), resume);
            }
            let (done, resume) = work(tracee, reason);
            (Ok(done), resume)
        };
        self.supervisor.order(task, within, own)?
    }

    /// Returns how a thread goes on that a coordinator has ordered work with, if it is none of the
    /// coordinator's any more; `None` if it still is.
    pub(crate) fn resume_of_other(
        &self,
        coordinator: CoordinatorId,
        task: u32,
        reason: StopReason,
    ) -> Option<Resume> {
        match reason {
            _ if self.threads.is_of(task, coordinator) => None,
            // Another thread decides about it.
            StopReason::Kept => Some(Resume::Stay),
            _ => Some(self.threads.default_resume(task)),
        }
    }
}
