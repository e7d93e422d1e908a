//! The state of a supervisor, and its reports on its processes.
//!
//! A task belongs to the supervisor from its first instruction until its parent can learn of its
//! end.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use parking_lot::Mutex;
use refit_sys::trace::{Options, Tracee};
use refit_sys::wait_interrupt::Wakeup;

use crate::hook::{Hook, TracerHook};
use crate::process::{self, Process};
use crate::supervisor::answers::MoveRequests;
use crate::supervisor::processes::ProcessTable;
use crate::supervisor::short_writes;
use crate::supervisor::shown::Shown;
use crate::supervisor::tasks::TaskTable;
use crate::supervisor::work::{StopAllWork, SupervisorRequest};
use crate::syscall;

/// The events that each task reports, which the tasks that it makes inherit; and that all tasks
/// are killed when the thread that traces them ends.
pub const TRACE_OPTIONS: Options = Options::FORK
    .union(Options::VFORK)
    .union(Options::CLONE)
    .union(Options::EXEC)
    .union(Options::SECCOMP)
    .union(Options::SYSTEM_CALL)
    .union(Options::EXIT_KILL);

/// The events of the first task, and of all tasks of a movable program: they also report that they
/// are about to exit.
pub const TRACE_OPTIONS_WITH_EXIT: Options = TRACE_OPTIONS.union(Options::EXIT);

/// Why a process cannot migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMovable {
    /// Its programs may hold anything of the kernel that runs them.
    #[error("it was not started by `refit run --movable`")]
    NotStartedMovable,
    /// The process was made by `vfork`, and has neither exited nor executed a program.
    #[error("it shares the memory of its parent until it executes another program")]
    BorrowsMemory,
    /// The process was made by `clone` with `CLONE_VM`.
    #[error("it shares the memory of its parent")]
    SharesMemory,
    /// The process has installed a seccomp filter of its own.
    #[error("it limits its own system calls (seccomp)")]
    LimitsItself,
    /// The hook has not let it begin.
    #[error("it has not started yet")]
    NotBegun,
    /// Its program can call the vDSO, which has data of this kernel.
    #[error("it has the vDSO of this kernel, which could not be hidden from it")]
    HoldsVdso,
}

impl From<NotMovable> for io::Error {
    fn from(error: NotMovable) -> Self {
        io::Error::other(error)
    }
}

/// Receives the number of a process.
pub(super) type Watcher = Box<dyn Fn(u32) + Send + Sync>;
/// Returns whether a new task stays stopped until it is ordered to go on.
pub(super) type BirthWatcher = Box<dyn Fn(u32) -> bool + Send + Sync>;
/// Returns whether a task that would dump core for this signal stays stopped until it is ordered
/// to go on.
pub(super) type DumpWatcher = Box<dyn Fn(u32, i32) -> bool + Send + Sync>;

/// All tasks of a program and of what it starts, traced by one thread.
///
/// The thread that calls [`follow`](Self::follow) runs the event loop. Any other thread may leave
/// requests for it, since only the tracer of a task can act on the task.
///
/// # Locks
/// Each protects the collection in it. A callback is called under the lock that it is stored in;
/// otherwise none is held while another is taken.
#[derive(Default)]
pub struct Supervisor {
    pub(super) tasks: TaskTable,
    pub(super) processes: ProcessTable,
    /// Wakes the event loop for a request.
    pub(super) wakeup: Wakeup,
    /// Set when the event loop has ended.
    pub(super) over: AtomicBool,
    pub(super) requests: Mutex<Vec<SupervisorRequest>>,
    pub(super) stop_requests: Mutex<Vec<StopAllWork<Self>>>,
    /// Threads that are stopped at their exit, and may exit now.
    pub(super) may_exit: Mutex<Vec<u32>>,
    /// Receives each process that ends or executes another program.
    pub(super) watcher: Mutex<Option<Watcher>>,
    pub(super) births: Mutex<Option<BirthWatcher>>,
    pub(super) dumps: Mutex<Option<DumpWatcher>>,
    /// Receives the first process before it ends.
    pub(super) exit_observer: Mutex<Option<Watcher>>,
    /// Whether its programs must hold nothing of the kernel that runs them.
    pub(super) movable: bool,
    /// Decides about threads that run elsewhere.
    pub(super) hook: Hook,
    /// Threads that ask to run elsewhere.
    pub(super) move_requests: MoveRequests,
    /// Notified of each new task, and of each process that executes another program.
    pub(super) program_listener: Mutex<Option<Sender<()>>>,
    /// The processors that its programs see; `None`: those that they may use.
    pub(super) shown: Option<Shown>,
}

impl Supervisor {
    /// Returns a supervisor of movable programs. The first process must be movable from its next
    /// program on ([`refit_sys::launch::be_movable`]); the event loop hides the vDSO from each
    /// program.
    pub fn of_movable() -> Self {
        Self { movable: true, ..Self::default() }
    }

    /// Has `hook` decide about threads that run elsewhere; before anything is followed.
    pub fn set_hook(&mut self, hook: Arc<dyn TracerHook>) {
        self.hook = Hook::new(hook);
    }

    /// Returns the number of seccomp filters that refit has given to a process, or that it has from
    /// its parent.
    pub fn filter_count(&self, process: u32) -> u32 {
        let state = self.processes.state(process);
        u32::from(self.movable || state.managed) + u32::from(state.watched)
    }

    /// Records that a process has the filter of those that refit manages
    /// ([`refit_sys::seccomp::managed`]), and with it the processes that it makes.
    pub fn add_managed(&self, process: u32) {
        self.processes.entry(process, |state| state.managed = true);
    }

    /// Records that a process has a filter that reports how it changes its memory, and with it the
    /// processes that it makes.
    pub fn add_watched(&self, process: u32) {
        self.processes.entry(process, |state| state.watched = true);
    }

    /// Returns the addresses of the words of a process that the kernel clears when threads end, and
    /// that joiners wait for (`CLONE_CHILD_CLEARTID`). The kernel waits for no page at that time:
    /// it does not write to a word whose page is absent, and the joiner would wait forever.
    pub fn clear_words(&self, process: u32) -> Vec<u64> {
        self.tasks.clear_words(process)
    }

    /// Checks whether a process can migrate.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_movable(&self, process: u32) -> Result<(), NotMovable> {
        if !self.movable {
            return Err(NotMovable::NotStartedMovable);
        }
        let state = self.processes.state(process);
        if state.loan.is_some() {
            return Err(NotMovable::BorrowsMemory);
        }
        let parent = process::parent_of(process).filter(|parent| self.tasks.has(*parent));
        let same = |parent| refit_sys::process::same_memory(process, parent);
        if parent.is_some_and(|parent| same(parent).is_ok_and(|same| same)) {
            return Err(NotMovable::SharesMemory);
        }
        if state.limits_itself {
            return Err(NotMovable::LimitsItself);
        }
        if self.hook.is_starting(process) {
            return Err(NotMovable::NotBegun);
        }
        if state.bound {
            return Err(NotMovable::HoldsVdso);
        }
        Ok(())
    }

    /// Returns whether a stop has cut a thread's call short, so that the rest of the call is still
    /// to do.
    pub fn has_short_write(&self, thread: u32) -> bool {
        short_writes::is_short(&self.tasks, thread)
    }

    /// Drops the rest of such a call: the thread leaves with the short count.
    pub fn forget_short_write(&self, thread: u32) {
        short_writes::forget(&self.tasks, thread);
    }

    /// Returns whether a process limits its own calls (seccomp), and so must stay at its origin.
    pub fn limits_itself(&self, process: u32) -> bool {
        self.processes.state(process).limits_itself
    }

    /// Returns its present processes, by number.
    pub fn processes(&self) -> Vec<Process> {
        let movable = |id| self.movable && !self.processes.state(id).bound;
        let look = |id| process::look(id, movable(id), self.filter_count(id));
        self.process_numbers().into_iter().filter_map(look).collect()
    }

    /// Returns whether a process is one of its own.
    pub fn has(&self, process: u32) -> bool {
        self.tasks.has(process) && process::process_of(process) == Some(process)
    }

    /// Returns the numbers of its present processes.
    pub fn process_numbers(&self) -> BTreeSet<u32> {
        self.tasks.started().into_iter().filter_map(process::process_of).collect()
    }

    /// Returns whether a thread is blocked in `vfork` while a child uses its memory.
    pub fn is_in_vfork(&self, thread: u32) -> bool {
        self.processes.is_in_vfork(thread)
    }

    /// Reads what a thread has passed to the call that it is in, whose page may be at another node.
    pub(super) fn with_page<R>(
        &self,
        tracee: &Tracee,
        read: impl Fn(&Tracee) -> io::Result<R>,
    ) -> io::Result<R> {
        syscall::with_page(tracee, || self.hook.has_remote_pages(), read)
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}
