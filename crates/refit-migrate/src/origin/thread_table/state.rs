//! The data of the thread table.

use std::collections::BTreeMap;

use refit_sys::trace::{Event, Tracee};
use refit_tracer::signals::stops;
use tracing::trace;

use crate::origin::fork_flags;
use crate::origin::futex_ops::FutexOp;
use crate::origin::tracer_event::{CoordinatorId, Standing, TracerEvent};

/// The programs that have coordinators, their threads, and tasks that may become theirs.
#[derive(Default)]
pub(super) struct State {
    /// By process.
    pub(super) coordinators: BTreeMap<u32, CoordinatorHandle>,
    /// Threads of programs that have coordinators.
    pub(super) threads: BTreeMap<u32, Thread>,
    /// Calls that are followed to their ends. A call outlives the coordinator for which it began:
    /// the thread has other arguments than it gave, or is resumed to its next stop only.
    pub(super) calls: FollowedCalls,
    /// Tasks that are no threads of a coordinator's yet.
    pub(super) new_tasks: BTreeMap<u32, NewTask>,
}

/// A thread of a program that has a coordinator.
pub(super) struct Thread {
    id: u32,
    pub(super) process: u32,
    standing: Standing,
    /// Whether it is stopped with its process.
    stopped: bool,
    /// Whether a signal is being delivered to it that stops all threads.
    stop_delivered: bool,
}

impl Thread {
    /// Returns a thread that is at its origin.
    pub(super) fn new(id: u32, process: u32) -> Self {
        Self { id, process, standing: Standing::Home, stopped: false, stop_delivered: false }
    }

    /// Returns where it is.
    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// Notes where it is from now on.
    pub(super) fn place(&mut self, standing: Standing) {
        trace!(thread = self.id, from = ?self.standing, to = ?standing, "standing");
        self.standing = standing;
    }

    /// Notes that it has made the call that changes the memory.
    pub(super) fn changed(&mut self) {
        debug_assert_eq!(self.standing, Standing::Changing);
        self.place(Standing::Home);
    }

    /// Notes that a signal is being delivered to it that stops all threads.
    pub(super) fn deliver_stop(&mut self) {
        self.stop_delivered = true;
    }

    /// Returns the event that such a signal was delivered, once.
    pub(super) fn take_stop_delivered(&mut self) -> Option<TracerEvent> {
        std::mem::take(&mut self.stop_delivered).then_some(TracerEvent::StopDelivered(self.id))
    }

    /// Returns the event of its process being stopped or continued, if there is one.
    pub(super) fn job_control_event(&mut self, event: Event) -> Option<TracerEvent> {
        match event {
            Event::Stopped(_) => {
                let first = !std::mem::replace(&mut self.stopped, true);
                let away = self.standing == Standing::Away;
                (first && away).then_some(TracerEvent::Stopped(self.id))
            }
            Event::Interrupted => {
                std::mem::take(&mut self.stopped).then_some(TracerEvent::Continued(self.id))
            }
            _ => None,
        }
    }
}

/// A call that a thread is in, and that is followed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowedCall {
    /// The call makes a process whose number refit writes to this address.
    Fork { word: u64 },
    /// The call passes words on.
    Futex(FutexOp),
}

/// The state of a task between its creation and its beginning, of which the two reports, its
/// creator's and its own first stop, come in any order.
///
/// ```text
///   no entry ──► Early    created, no coordinator          Early ────► no entry   first stop
///            ──► Awaited  created, there is a coordinator  Awaited ──► no entry   first stop
///            ──► Seen     first stop, it is nobody's       Seen ─────► no entry   created
///            ──► Unstarted  first stop, it is kept         Unstarted ► no entry   started
/// ```
///
/// A task that is kept at its first stop may have been `Early` or `Awaited` until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewTask {
    /// Its creation was reported before there was a coordinator, and its first stop has not come:
    /// its memory is its own.
    Early,
    /// Its creation was reported, and its first stop has not come: the coordinator of this process
    /// waits for that.
    Awaited { process: u32 },
    /// Its first stop came before there was a coordinator, and its creation was not reported yet.
    Seen { parent: u32 },
    /// The task is a process that has not started: its memory is not its own yet.
    Unstarted,
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

    /// Returns whether a signal is about to be delivered to a thread that stops others which are
    /// away.
    pub(super) fn stops_all(&self, task: u32, process: u32, event: Event) -> bool {
        let is_away = |one: &Thread| one.process == process && one.standing == Standing::Away;
        let away = || self.threads.values().any(is_away);
        matches!(event, Event::Signal(signal) if stops(task, signal) && away())
    }

    /// Notes that the creation of a task by a thread was reported. Returns whether a coordinator
    /// must know.
    pub(super) fn created(&mut self, by: u32, child: u32) -> bool {
        let creator = self.threads.get(&by).map(|thread| thread.process);
        let next = match (self.new_tasks.get(&child), creator) {
            // The memory of a task whose first stop came before there was a coordinator is its own.
            (Some(NewTask::Seen { .. }), _) => {
                self.new_tasks.remove(&child);
                return false;
            }
            (Some(NewTask::Unstarted), _) => return creator.is_some(),
            (_, None) => NewTask::Early,
            (_, Some(_)) if self.threads.contains_key(&child) => return true,
            (_, Some(process)) => NewTask::Awaited { process },
        };
        trace!(task = child, by, ?next, "is created");
        self.new_tasks.insert(child, next);
        creator.is_some()
    }

    /// Notes that the first stop of a task has come. Returns its state before.
    pub(super) fn first_stop(&mut self, task: u32) -> Option<NewTask> {
        let before = self.new_tasks.get(&task).copied();
        debug_assert!(before != Some(NewTask::Unstarted), "{task} has stopped before");
        if matches!(before, Some(NewTask::Early | NewTask::Awaited { .. })) {
            self.new_tasks.remove(&task);
        }
        before
    }

    /// Notes that a task whose first stop has come is kept (`stays`), or is nobody's.
    pub(super) fn stopped_first(&mut self, task: u32, state: NewTask) {
        trace!(task, ?state, "has stopped for the first time");
        self.new_tasks.insert(task, state);
    }

    /// Returns whether a process has not started.
    pub(super) fn is_unstarted(&self, process: u32) -> bool {
        self.new_tasks.get(&process) == Some(&NewTask::Unstarted)
    }

    /// Notes that a task has ended. Returns the process whose coordinator waits for the first stop
    /// of the task. The creator of a task may report it after its end.
    pub(super) fn ended(&mut self, task: u32) -> Option<u32> {
        // A task that has ended reports no creation any more.
        self.new_tasks.retain(|_, one| *one != NewTask::Seen { parent: task });
        if let Some(NewTask::Seen { .. }) = self.new_tasks.get(&task) {
            return None;
        }
        match self.new_tasks.remove(&task)? {
            NewTask::Awaited { process } => Some(process),
            NewTask::Early | NewTask::Seen { .. } | NewTask::Unstarted => None,
        }
    }

    /// Notes that a process starts.
    pub(super) fn started(&mut self, process: u32) {
        if self.is_unstarted(process) {
            self.new_tasks.remove(&process);
        }
    }
}

/// The calls that are followed to their ends, by thread.
#[derive(Default)]
pub(super) struct FollowedCalls {
    of: BTreeMap<u32, FollowedCall>,
}

impl FollowedCalls {
    /// Handles an event of a thread, which matters only if it is a stop for a system call.
    pub(super) fn on_event(&mut self, tracee: &Tracee, event: Event) -> CallStop {
        let task = tracee.thread();
        match self.of.get_mut(&task) {
            _ if event != Event::SystemCall => CallStop::Other,
            None => CallStop::Other,
            Some(FollowedCall::Fork { .. }) if tracee.has_returned() => {
                self.end(task);
                // This fails only if the thread was killed meanwhile.
                let _ = fork_flags::restore_flag(tracee);
                CallStop::ForkEnds
            }
            Some(FollowedCall::Fork { .. }) => CallStop::Fork,
            Some(FollowedCall::Futex(call)) => {
                if call.misses_pages(tracee) {
                    return CallStop::MissesPages;
                }
                self.end(task);
                CallStop::Other
            }
        }
    }

    /// Begins to follow a call of a thread.
    pub(super) fn begin(&mut self, task: u32, call: FollowedCall) {
        trace!(thread = task, ?call, "a call is followed");
        self.of.insert(task, call);
    }

    /// Begins to follow a call that passes words on, or goes on to: it may have been restarted.
    pub(super) fn begin_futex(&mut self, task: u32) {
        if !matches!(self.of.get(&task), Some(FollowedCall::Futex(_))) {
            self.begin(task, FollowedCall::Futex(FutexOp::default()));
        }
    }

    fn end(&mut self, task: u32) {
        let call = self.of.remove(&task);
        trace!(thread = task, ?call, "a call is followed no more");
    }

    /// Returns the operation that a thread is in, if that passes words on.
    pub(super) fn futex(&mut self, task: u32) -> Option<&mut FutexOp> {
        match self.of.get_mut(&task)? {
            FollowedCall::Futex(call) => Some(call),
            FollowedCall::Fork { .. } => None,
        }
    }

    /// Returns where refit writes the number of the process that a thread is making.
    pub(super) fn word(&self, task: u32) -> Option<u64> {
        match self.of.get(&task)? {
            FollowedCall::Fork { word } => Some(*word),
            FollowedCall::Futex(_) => None,
        }
    }

    /// Forgets the call of a thread that has ended.
    pub(super) fn forget(&mut self, task: u32) {
        self.of.remove(&task);
    }

    /// Forgets the operation of a thread that executes another program.
    pub(super) fn forget_futex(&mut self, task: u32) {
        if self.futex(task).is_some() {
            self.end(task);
        }
    }
}

/// The stop of a thread for a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStop {
    /// The thread is in no call that is followed.
    Other,
    /// The thread is inside a call that makes a process.
    Fork,
    /// Such a call ends.
    ForkEnds,
    /// A call has done nothing, since pages of its words may be at another node.
    MissesPages,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: u32 = 7;
    const CHILD: u32 = 8;

    /// A process whose coordinator has begun.
    fn coordinated() -> State {
        let mut state = State::default();
        state.threads.insert(PROCESS, Thread::new(PROCESS, PROCESS));
        state
    }

    #[test]
    fn the_reports_of_a_new_task_come_in_any_order() {
        let mut state = coordinated();
        assert!(state.created(PROCESS, CHILD));
        assert_eq!(state.first_stop(CHILD), Some(NewTask::Awaited { process: PROCESS }));
        state.stopped_first(CHILD, NewTask::Unstarted);
        assert!(state.is_unstarted(CHILD));
        state.started(CHILD);
        assert!(state.new_tasks.is_empty());

        assert_eq!(state.first_stop(CHILD), None);
        state.stopped_first(CHILD, NewTask::Unstarted);
        assert!(state.created(PROCESS, CHILD));
        assert!(state.is_unstarted(CHILD), "it waits for its coordinator");
    }

    #[test]
    fn a_task_that_came_before_the_coordinator_is_nobodys() {
        let mut state = State::default();
        assert!(!state.created(PROCESS, CHILD));
        assert_eq!(state.first_stop(CHILD), Some(NewTask::Early));
        assert!(state.new_tasks.is_empty());

        state.stopped_first(CHILD, NewTask::Seen { parent: PROCESS });
        state.threads.insert(PROCESS, Thread::new(PROCESS, PROCESS));
        assert_eq!(state.ended(CHILD), None);
        assert!(!state.created(PROCESS, CHILD), "its creator reports it late");
        assert!(state.new_tasks.is_empty());
        state.stopped_first(CHILD, NewTask::Seen { parent: PROCESS });
        assert_eq!(state.ended(PROCESS), None);
        assert!(state.new_tasks.is_empty(), "its creator has ended");
    }

    #[test]
    fn a_coordinator_learns_of_a_task_that_ends_before_its_first_stop() {
        let mut state = coordinated();
        assert!(state.created(PROCESS, CHILD));
        assert_eq!(state.ended(CHILD), Some(PROCESS));
        assert_eq!(state.ended(CHILD), None);
    }

    #[test]
    fn a_call_that_makes_a_process_outlives_the_coordinator() {
        let mut state = coordinated();
        state.calls.begin(PROCESS, FollowedCall::Fork { word: 64 });
        state.threads.clear();
        state.calls.forget_futex(PROCESS);
        assert_eq!(state.calls.word(PROCESS), Some(64));
        state.calls.forget(PROCESS);
        assert_eq!(state.calls.word(PROCESS), None);
    }
}
