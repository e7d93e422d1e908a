//! The threads of programs that have moved: what their events mean, and which coordinator receives
//! them.
//!
//! One thread of ours, its *coordinator* ([`crate::origin::coordinator`]), decides everything about
//! such a program. It receives the events from here, and answers by
//! [`Supervisor::order`](refit_tracer::Supervisor::order); a task that waits for a decision stays
//! stopped until then. Nothing here waits for a coordinator.

mod hook;
mod state;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use refit_sys::foreign::Memory;
use refit_sys::trace::Tracee;
use refit_tracer::syscall::with_page;
use refit_tracer::{Resume, process};

use crate::origin::tracer_event::{CoordinatorId, Standing, TracerEvent};
use state::{CoordinatorHandle, NewTask, State, Thread};

/// The message of the filter for a call that changes a memory which several nodes have.
pub(crate) const MAPS: u16 = 0x6d70;

/// The programs that have coordinators, and their threads.
#[derive(Default)]
pub(crate) struct ThreadTable {
    /// Whether there has been any coordinator.
    any: AtomicBool,
    /// The number of coordinators so far.
    begun: AtomicU64,
    state: Mutex<State>,
}

impl ThreadTable {
    /// Begins to send events of a process to its coordinator; called in the event loop's thread.
    /// Returns the threads of the process. They are known at the same moment: of any task that they
    /// make, the coordinator receives both events ([`TracerEvent::Forked`],
    /// [`TracerEvent::NewTask`]) or none; and it receives their ends.
    pub(crate) fn begin(
        &self,
        process: u32,
        send: impl Fn(TracerEvent) -> bool + Send + 'static,
    ) -> (CoordinatorId, Vec<u32>) {
        // Relaxed: the number only has to differ from all others.
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let send = Box::new(send);
        let coordinator = CoordinatorHandle { number, send, shared: false, pages_move: false };
        let mut state = self.state();
        state.coordinators.insert(process, coordinator);
        let threads = refit_sys::process::threads(process);
        state.threads.extend(threads.iter().map(|&id| (id, Thread::new(id, process))));
        drop(state);
        // Pairs with the load in `is_empty`.
        self.any.store(true, Ordering::Release);
        (CoordinatorId { process, number }, threads)
    }

    /// Forgets a coordinator that has ended.
    pub(crate) fn end(&self, coordinator_id: CoordinatorId) {
        let mut state = self.state();
        if state.coordinator(coordinator_id).is_some() {
            state.coordinators.remove(&coordinator_id.process);
            state.threads.retain(|_, thread| thread.process != coordinator_id.process);
        }
    }

    /// Returns whether a thread is one of a coordinator's. While the event loop does work that the
    /// coordinator has ordered, the answer does not change.
    pub(crate) fn is_of(&self, task: u32, coordinator_id: CoordinatorId) -> bool {
        let mut state = self.state();
        let process = state.threads.get(&task).map(|thread| thread.process);
        process == Some(coordinator_id.process) && state.coordinator(coordinator_id).is_some()
    }

    /// Returns whether a process has a coordinator.
    pub(crate) fn has(&self, process: u32) -> bool {
        !self.is_empty() && self.state().coordinators.contains_key(&process)
    }

    /// Reports changes of a process's memory from now on: another node has some of it.
    pub(crate) fn share(&self, coordinator_id: CoordinatorId) {
        if let Some(coordinator) = self.state().coordinator(coordinator_id) {
            coordinator.shared = true;
        }
    }

    /// Reports exits of a process's threads from now on: pages of it can be at another node only.
    pub(crate) fn pages_move(&self, coordinator_id: CoordinatorId) {
        if let Some(coordinator) = self.state().coordinator(coordinator_id) {
            coordinator.pages_move = true;
        }
    }

    /// Notes where a thread of a coordinator is from now on, if it is still one.
    pub(crate) fn place(&self, coordinator_id: CoordinatorId, thread: u32, standing: Standing) {
        let mut state = self.state();
        if state.coordinator(coordinator_id).is_some()
            && let Some(thread) = state.threads.get_mut(&thread)
            && thread.process == coordinator_id.process
        {
            thread.place(standing);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Notes that a thread has made a task. Returns whether a coordinator must know.
    fn note_creation(&self, by: u32, child: u32) -> bool {
        self.state().created(by, child)
    }

    /// Returns whether a thread that has just made a task shares its memory with it.
    fn shares_memory(&self, tracee: &Tracee, child: u32) -> bool {
        refit_sys::process::same_memory(tracee.thread(), child)
            // The kernel may not report this.
            .or_else(|_| with_page(tracee, || !self.is_empty(), flags_of_clone))
            .map_or(true, |flags| flags)
    }

    /// Returns how a thread goes on if nothing else was decided.
    pub(crate) fn default_resume(&self, task: u32) -> Resume {
        if self.is_empty() {
            return Resume::Continue;
        }
        let state = self.state();
        match state.threads.get(&task).map(Thread::standing) {
            _ if state.calls.word(task).is_some() => Resume::ToSystemCall(0),
            Some(Standing::Visiting | Standing::Changing) => Resume::ToSystemCall(0),
            _ => Resume::Continue,
        }
    }

    fn note_first_stop(&self, task: u32, early: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let Some(process) = process::process_of(task) else { return false };
        let mut state = self.state();
        let of = if state.coordinators.contains_key(&process) {
            state.threads.insert(task, Thread::new(task, process));
            process
        } else {
            let Some(parent) = process::parent_of(task).filter(|_| !early) else { return false };
            parent
        };
        let coordinator = state.coordinators.get(&of);
        let stays =
            coordinator.is_some_and(|coordinator| (coordinator.send)(TracerEvent::NewTask(task)));
        if stays && of != process {
            state.stopped_first(process, NewTask::Unstarted);
        }
        stays
    }

    /// Returns whether a thread is one of a program with a coordinator; it is not, once the program
    /// has executed another one.
    pub(crate) fn knows(&self, thread: u32) -> bool {
        self.state().threads.contains_key(&thread)
    }

    /// Returns whether a thread waits for its coordinator to [decide](Self::decide_futex) whether a
    /// call is restarted.
    pub(crate) fn waits_for_pages(&self, thread: u32) -> bool {
        self.state().calls.futex(thread).is_some_and(|call| call.is_waiting())
    }

    /// Notes that the coordinator of a thread decides about its call.
    pub(crate) fn decide_futex(&self, thread: u32) {
        if let Some(call) = self.state().calls.futex(thread) {
            call.decide();
        }
    }

    /// Notes that a signal is being delivered to a thread that stops all threads.
    pub(crate) fn stop_delivered(&self, thread: u32) {
        if let Some(thread) = self.state().threads.get_mut(&thread) {
            thread.deliver_stop();
        }
    }

    /// Notes that a process starts which a thread of a program with a coordinator has made.
    pub(crate) fn process_started(&self, process: u32) {
        self.state().started(process);
    }
}

/// Returns whether a thread that is in the call that makes a task shares its memory with it.
fn flags_of_clone(tracee: &Tracee) -> io::Result<bool> {
    let registers = tracee.registers()?;
    let flags = match registers.orig_rax.cast_signed() {
        // `struct clone_args` begins with its flags.
        libc::SYS_clone3 => Memory::of(tracee.thread())?.word(registers.rdi)?,
        _ => registers.rdi,
    };
    Ok(flags & libc::CLONE_VM as u64 != 0)
}
