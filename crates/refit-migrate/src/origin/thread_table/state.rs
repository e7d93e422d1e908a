//! The data of the thread table.

use std::collections::{BTreeMap, BTreeSet};

use refit_sys::trace::{Event, Tracee};
use refit_tracer::signals::stops;

use crate::origin::fork_flags;
use crate::origin::futex_ops::FutexOps;
use crate::origin::tracer_event::{CoordinatorId, Standing, TracerEvent};

#[derive(Default)]
pub(super) struct State {
    pub(super) coordinators: BTreeMap<u32, CoordinatorHandle>,
    pub(super) threads: BTreeMap<u32, (u32, Standing)>,
    /// Threads in a call that makes a process whose number refit writes, and the address.
    pub(super) forking: BTreeMap<u32, u64>,
    /// Threads in a futex operation that passes words on.
    pub(super) futex_ops: FutexOps,
    /// Threads that are stopped with their processes.
    pub(super) stopped: BTreeSet<u32>,
    /// Threads to which a signal is being delivered that stops all threads.
    pub(super) stop_delivered: BTreeSet<u32>,
    /// Tasks whose creation was reported before there was a coordinator, and whose first stop has
    /// not come: their memory is their own.
    pub(super) early: BTreeSet<u32>,
    /// Tasks whose creation was reported, and whose first stop has not come: the process whose
    /// coordinator waits for it.
    pub(super) awaited: BTreeMap<u32, u32>,
    /// Tasks whose first stop came before there was a coordinator, and whose creation was not
    /// reported yet; and their parents.
    pub(super) seen: BTreeMap<u32, u32>,
    /// Processes that have not started: their memory is not their own yet.
    pub(super) unstarted: BTreeSet<u32>,
}

/// Sends an event to a coordinator. Returns whether the coordinator still exists.
type SendEvent = Box<dyn Fn(TracerEvent) -> bool + Send>;

pub(super) struct CoordinatorHandle {
    pub(super) number: u64,
    pub(super) send: SendEvent,
    /// Whether another node has some of the memory.
    pub(super) shared: bool,
    /// Whether pages of it can be at another node only.
    pub(super) pages_move: bool,
}

impl State {
    /// Returns the handle of a coordinator, unless its process has another one by now.
    pub(super) fn coordinator(
        &mut self,
        coordinator_id: CoordinatorId,
    ) -> Option<&mut CoordinatorHandle> {
        let coordinator = self.coordinators.get_mut(&coordinator_id.process);
        coordinator.filter(|coordinator| coordinator.number == coordinator_id.number)
    }

    /// Returns the event of a thread's process being stopped or continued, if there is one.
    pub(super) fn job_control_event(&mut self, task: u32, event: Event) -> Option<TracerEvent> {
        let &(_, standing) = self.threads.get(&task)?;
        match event {
            Event::Stopped(_) => {
                let first = self.stopped.insert(task);
                (first && standing == Standing::Away).then_some(TracerEvent::Stopped(task))
            }
            Event::Interrupted => {
                self.stopped.remove(&task).then_some(TracerEvent::Continued(task))
            }
            _ => None,
        }
    }

    /// Returns whether a signal is about to be delivered to a thread that stops others which are
    /// away.
    pub(super) fn stops_all(&self, task: u32, process: u32, event: Event) -> bool {
        let away = || self.threads.values().any(|&one| one == (process, Standing::Away));
        matches!(event, Event::Signal(signal) if stops(task, signal) && away())
    }

    /// Restores the arguments of a thread at the end of a call that makes a process. Returns
    /// whether it is at the end.
    pub(super) fn end_fork(&mut self, tracee: &Tracee) -> bool {
        let exit = tracee.has_returned();
        if exit && self.forking.remove(&tracee.thread()).is_some() {
            // This fails only if the thread was killed meanwhile.
            let _ = fork_flags::restore_flag(tracee);
        }
        exit
    }
}
