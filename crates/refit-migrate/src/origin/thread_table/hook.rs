//! The thread table as the supervisor's hook.

use refit_sys::seccomp::managed::LIMITS;
use refit_sys::trace::{Event, Tracee};
use refit_tracer::signals::caught;
use refit_tracer::syscall::is_interrupted;
use refit_tracer::{Resume, ThreadMoveRequest, TracerHook, process};

use crate::origin::fork_flags::{self, FORKS};
use crate::origin::futex_ops::WORDS;
use crate::origin::thread_table::state::{CallStop, FollowedCall, NewTask, State, Thread};
use crate::origin::thread_table::{MAPS, ThreadTable};
use crate::origin::tracer_event::{Standing, TracerEvent};
use crate::syscalls::is_watched;

impl TracerHook for ThreadTable {
    fn on_event(&self, tracee: &Tracee, event: Event) -> Option<Resume> {
        let task = tracee.thread();
        if event.child().is_some_and(|child| !self.note_creation(task, child)) || self.is_empty() {
            return None;
        }
        let mut state = self.state();
        let word = state.calls.word(task);
        let call = state.calls.on_event(tracee, event);
        let thread = state.threads.get_mut(&task)?;
        let by_job_control = thread.job_control_event(event);
        let (process, standing) = (thread.process, thread.standing());
        let stops_all = state.stops_all(task, process, event);
        let delivered = state.threads.get_mut(&task).and_then(Thread::take_stop_delivered);
        let State { coordinators, threads, calls, .. } = &mut *state;
        // A coordinator ends only with its process.
        let coordinator = coordinators.get(&process);
        let send = |event| coordinator.is_some_and(|coordinator| (coordinator.send)(event));
        let shared = coordinator.is_some_and(|coordinator| coordinator.shared);
        let pages_move = coordinator.is_some_and(|coordinator| coordinator.pages_move);
        // Without a coordinator the event means what it means to any tracee.
        let keep = |event| send(event).then_some(Resume::Stay);
        for event in delivered.into_iter().chain(by_job_control) {
            send(event);
        }
        match (event, standing) {
            _ if stops_all => keep(TracerEvent::StopSignal(task)),
            (Event::Seccomp { message: FORKS }, _) if shared => {
                let word = fork_flags::withhold_word(tracee).ok()?;
                calls.begin(task, FollowedCall::Fork { word });
                Some(Resume::ToSystemCall(0))
            }
            (_, Standing::Home | Standing::Away) if call == CallStop::ForkEnds => {
                Some(Resume::Continue)
            }
            (_, Standing::Home | Standing::Away) if call == CallStop::Fork => {
                Some(Resume::ToSystemCall(0))
            }
            (Event::Seccomp { message: WORDS }, Standing::Home | Standing::Visiting)
                if pages_move =>
            {
                calls.begin_futex(task);
                Some(Resume::ToSystemCall(0))
            }
            (_, Standing::Home | Standing::Visiting) if call == CallStop::MissesPages => {
                keep(TracerEvent::MissingPages(task))
            }
            (Event::Signal(signal), Standing::Away) if caught(task, signal) => {
                keep(TracerEvent::Signal(task))
            }
            (Event::Signal(signal), Standing::Visiting | Standing::Changing) => {
                Some(Resume::ToSystemCall(signal))
            }
            (Event::Seccomp { message: MAPS }, Standing::Home | Standing::Visiting) if shared => {
                keep(TracerEvent::BeforeChange(task))
            }
            (Event::Seccomp { message: LIMITS }, _) => keep(TracerEvent::BeforeLimit(task)),
            (Event::SystemCall, Standing::Visiting) if returned(tracee) => {
                keep(TracerEvent::CallReturned(task))
            }
            (Event::SystemCall, Standing::Changing) if returned(tracee) => {
                send(TracerEvent::Changed(task));
                threads.get_mut(&task).into_iter().for_each(Thread::changed);
                Some(Resume::Continue)
            }
            (Event::Clone { child }, _) if process::process_of(child) == Some(process) => None,
            (Event::Vfork { child } | Event::Fork { child } | Event::Clone { child }, _) => {
                let copy =
                    !matches!(event, Event::Vfork { .. }) && !self.shares_memory(tracee, child);
                let sent = send(TracerEvent::Forked { parent: task, child, copy, word });
                (sent && copy).then_some(Resume::Stay)
            }
            _ => None,
        }
    }

    fn resume(&self, thread: u32) -> Resume {
        self.default_resume(thread)
    }

    fn is_tracked(&self, thread: u32) -> bool {
        self.knows(thread)
    }

    fn runs_elsewhere(&self, thread: u32) -> bool {
        let state = self.state();
        state.threads.get(&thread).is_some_and(|thread| thread.standing() == Standing::Away)
    }

    fn has_remote_pages(&self) -> bool {
        !self.is_empty()
    }

    fn task_started(&self, task: u32) -> bool {
        let before = self.state().first_stop(task);
        let stays = self.note_first_stop(task, before == Some(NewTask::Early));
        if !stays && !matches!(before, Some(NewTask::Early | NewTask::Awaited { .. })) {
            let parent = process::parent_of(task).unwrap_or_default();
            self.state().stopped_first(task, NewTask::Seen { parent });
        }
        stays
    }

    fn is_starting(&self, process: u32) -> bool {
        !self.is_empty() && self.state().is_unstarted(process)
    }

    fn thread_exits(&self, task: u32) -> bool {
        let state = self.state();
        let of = state.threads.get(&task);
        let coordinator = of.and_then(|thread| state.coordinators.get(&thread.process));
        coordinator.is_some_and(|one| one.pages_move && (one.send)(TracerEvent::Exiting(task)))
    }

    fn task_ended(&self, task: u32, word: Option<u64>) {
        let mut state = self.state();
        state.calls.forget(task);
        if let Some(coordinator) = state.ended(task).and_then(|of| state.coordinators.get(&of)) {
            // Killed before its first stop: its coordinator must not wait for that.
            (coordinator.send)(TracerEvent::NewTask(task));
        }
        let Some(Thread { process, .. }) = state.threads.remove(&task) else { return };
        if let Some(coordinator) = state.coordinators.get(&process) {
            // The coordinator may have ended, too.
            word.map(|word| (coordinator.send)(TracerEvent::ClearWord { thread: task, word }));
            (coordinator.send)(TracerEvent::Ended(task));
        }
    }

    fn program_replaced(&self, process: u32, former: u32) {
        if self.is_empty() {
            return;
        }
        let mut state = self.state();
        state.threads.remove(&former);
        [former, process].into_iter().for_each(|thread| state.calls.forget_futex(thread));
        state.threads.retain(|_, thread| thread.process != process);
        if let Some(coordinator) = state.coordinators.remove(&process) {
            (coordinator.send)(TracerEvent::ProgramReplaced);
        }
    }

    fn move_requested(&self, request: ThreadMoveRequest) -> bool {
        let state = self.state();
        let of = state.threads.get(&request.thread);
        let coordinator = of.and_then(|thread| state.coordinators.get(&thread.process));
        coordinator
            .is_some_and(|coordinator| (coordinator.send)(TracerEvent::MoveRequested(request)))
    }

    fn reports(&self, message: u16, number: i64, arguments: &[u64; 6]) -> bool {
        match message {
            MAPS => is_watched(number, arguments),
            FORKS => number == libc::SYS_clone,
            WORDS => number == libc::SYS_futex,
            _ => false,
        }
    }
}

/// Returns whether a thread has returned from a call, for good.
fn returned(tracee: &Tracee) -> bool {
    tracee.has_returned()
        && tracee.registers().is_ok_and(|registers| !is_interrupted(registers.rax))
}
