//! One thread's residency at this node: arrival, running, return.

use std::io;
use std::sync::Arc;

use refit_messages::Reply;
use refit_sys::adaptive_spin;
use refit_sys::schedule::{Urgency, set_urgency};
use refit_sys::shadow_stub::{self, Slot};
use refit_sys::trace::{self, Event, Registers, Tracee};
use tracing::debug;

use crate::error::MoveRefusal;
use crate::fault_injection::{self, Step};
use crate::protocol::messages::{Arrive, ReturnReason, ThreadLost, ThreadReturned};
use crate::protocol::thread_state::ThreadState;
use crate::remote::executor::Executor;
use crate::remote::executor::shadow_affinity::ShadowAffinity;
use crate::remote::files::Files;
use crate::remote::mailbox::ExecutorCommand;
use crate::remote::replica::Replica;
use crate::remote::stub;

/// Starts an executor for a task of a replica, which rests.
///
/// # Errors
/// The task cannot be traced; there is no thread for it.
pub(crate) fn start(replica: &Arc<Replica>, task: u32) -> io::Result<Arc<Executor>> {
    let (process, replica) = (replica.process, Arc::clone(replica));
    Executor::start(process, task, move |executor, tracee| {
        ExecutorThread::new(&replica, executor, tracee).serve();
    })
}

/// The way in which a residency ends.
pub(super) enum ResidencyEnd {
    /// The thread has returned to its origin.
    Returned,
    /// The task is not needed any more.
    Ended,
    /// The task has ended, and nobody here has ended it.
    Killed,
}

/// Where to put the result of the call that a thread is in, if it is in one.
pub(super) type CallResult<'a> = Option<&'a mut Option<u64>>;

/// One thread's time at this node.
pub(super) struct Residency {
    pub(super) thread: u32,
    pub(super) residency: u64,
    /// `None`: calls go to the shadow by messages.
    pub(super) slot: Option<Slot>,
    pub(super) affinity: ShadowAffinity,
}

/// The data of the executor's own thread.
pub(super) struct ExecutorThread<'a> {
    pub(super) replica: &'a Replica,
    pub(super) executor: &'a Executor,
    pub(super) tracee: Tracee,
    /// The address of a `syscall` instruction of the replica.
    pub(super) instruction: u64,
    /// The count of mappings when the thread was resumed last.
    pub(super) seen_mappings: u64,
    /// The scheduling urgency that it was given last: policy, priority, niceness.
    pub(super) urgency: Option<(i32, i32, i32)>,
    /// The number of calls of `sched_yield` since the thread last did anything else.
    pub(super) yields: u32,
    pub(super) files: Files,
    /// Bytes on their way between files and the thread's memory.
    pub(super) buffer: Vec<u8>,
}

impl<'a> ExecutorThread<'a> {
    fn new(replica: &'a Replica, executor: &'a Executor, tracee: Tracee) -> Self {
        let instruction = replica.window.start + stub::CODE + shadow_stub::instruction();
        let (seen_mappings, urgency, yields) = (0, None, 0);
        let (files, buffer) = (Files::default(), Vec::new());
        Self {
            replica,
            executor,
            tracee,
            instruction,
            seen_mappings,
            urgency,
            yields,
            files,
            buffer,
        }
    }

    fn serve(mut self) {
        loop {
            match self.executor.mailbox.wait() {
                ExecutorCommand::Arrive(arrive, reply) => {
                    let thread = arrive.thread;
                    let end = self.run_residency(*arrive, reply);
                    self.executor.mailbox.set_slot(None);
                    let why = match end {
                        Ok(ResidencyEnd::Returned) => continue,
                        Ok(ResidencyEnd::Ended) => break,
                        Ok(ResidencyEnd::Killed) => "its replica was killed".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    let lost = ThreadLost { group: self.replica.group, thread, why };
                    // If the origin is gone, it needs no message.
                    let _ = self.replica.layer.send(self.replica.group.home(), &lost, &[]);
                    break;
                }
                ExecutorCommand::Expect => {
                    self.executor.mailbox.wait_until_filled(adaptive_spin::SOON)
                }
                // The thread has returned by itself meanwhile, or has ended.
                ExecutorCommand::Recall(_)
                | ExecutorCommand::SyscallResult(..)
                | ExecutorCommand::Rest => {}
                ExecutorCommand::End => break,
            }
        }
        // The task ends with its tracer, and its replica with it.
        self.tracee.leave();
    }

    fn run_residency(&mut self, arrive: Arrive, reply: Reply<Arrive>) -> io::Result<ResidencyEnd> {
        let slot = match self.replica.slots.map(|slots| Slot::at(slots, arrive.slot as usize)) {
            None => None,
            Some(Some(slot)) => Some(slot),
            Some(None) => {
                reply.say(&Err(MoveRefusal::NoSuchSlot.into()), &[]);
                return Ok(ResidencyEnd::Returned);
            }
        };
        let (group, thread) = (self.replica.group, arrive.thread);
        debug!(%group, thread, residency = arrive.residency, in_call = arrive.in_call, "a thread arrives");
        let residency = Residency {
            thread: arrive.thread,
            residency: arrive.residency,
            slot,
            affinity: ShadowAffinity::default(),
        };
        let general = arrive.state.general();
        fault_injection::stall(Step::Stall);
        let given = fault_injection::reach(Step::Registers)
            .and_then(|()| arrive.state.give(&self.tracee, &general));
        if let Err(error) = given {
            reply.say(&Err(error.into()), &[]);
            return Ok(ResidencyEnd::Returned);
        }
        if arrive.urgency.is_some() && arrive.urgency != self.urgency {
            self.urgency = arrive.urgency;
            let (policy, priority, nice) = arrive.urgency.unwrap_or_default();
            // As far as this node permits it.
            set_urgency(self.tracee.thread(), Urgency { policy, priority, nice });
        }
        self.executor.mailbox.set_slot(slot);
        if slot.is_some() {
            self.files.serve(self.replica.group.process, arrive.thread);
        }
        let arrived = || {
            reply.say(&Ok(()), &[]);
            debug!(%group, thread, residency = arrive.residency, "it runs");
        };
        if !arrive.in_call {
            return self.run(&residency, Some(arrived));
        }
        arrived();
        match self.until_answered(&residency)? {
            Some(end) => Ok(end),
            None => self.run(&residency, None::<fn()>),
        }
    }

    /// Runs the thread; calls `arrived` once it runs.
    fn run(
        &mut self,
        residency: &Residency,
        mut arrived: Option<impl FnOnce()>,
    ) -> io::Result<ResidencyEnd> {
        loop {
            if arrived.is_none()
                && let Some(end) = self.handle_commands(residency, None)?
            {
                return Ok(end);
            }
            self.seen_mappings = self.replica.mapped.seen();
            let runs = self.executor.mailbox.try_run();
            let resumed = if runs { self.tracee.resume_emulated(0) } else { Ok(()) };
            if let Some(arrived) = arrived.take() {
                arrived();
            }
            resumed?;
            if !runs {
                continue;
            }
            let event = self.next_event()?;
            self.executor.mailbox.set_stopped();
            let end = match event {
                Event::SystemCall => self.on_call(residency)?,
                Event::Signal(signal) => self.on_signal(residency, signal)?,
                Event::Exited(_) | Event::Killed(_) => Some(ResidencyEnd::Killed),
                _ => None,
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    fn next_event(&self) -> io::Result<Event> {
        loop {
            match trace::next_of(self.tracee.thread(), true) {
                Ok(Some((_, event))) => return Ok(event),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles the commands in the mailbox.
    pub(super) fn handle_commands(
        &mut self,
        residency: &Residency,
        mut call: CallResult<'_>,
    ) -> io::Result<Option<ResidencyEnd>> {
        while let Some(command) = self.executor.mailbox.take() {
            match command {
                ExecutorCommand::Recall(wanted) if wanted == residency.residency => {
                    let general = self.tracee.registers()?;
                    return self
                        .send_back(residency, ReturnReason::Recalled, call.is_some(), &general)
                        .map(Some);
                }
                ExecutorCommand::Rest => return Ok(Some(ResidencyEnd::Returned)),
                ExecutorCommand::SyscallResult(of, value) if of == residency.residency => {
                    if let Some(answer) = call.take() {
                        *answer = Some(value);
                        break;
                    }
                }
                ExecutorCommand::Expect
                | ExecutorCommand::Recall(_)
                | ExecutorCommand::SyscallResult(..) => {}
                ExecutorCommand::Arrive(_, reply) => {
                    reply.say(&Err(MoveRefusal::AlreadyHere.into()), &[]);
                }
                ExecutorCommand::End => return Ok(Some(ResidencyEnd::Ended)),
            }
        }
        Ok(None)
    }

    /// Sends the thread back to its origin.
    pub(super) fn send_back(
        &self,
        residency: &Residency,
        why: ReturnReason,
        in_call: bool,
        general: &Registers,
    ) -> io::Result<ResidencyEnd> {
        fault_injection::reach(Step::Back)?;
        residency.affinity.move_back();
        let state = ThreadState::of(&self.tracee, general)?;
        let (group, thread) = (self.replica.group, residency.thread);
        let returned =
            ThreadReturned { group, thread, residency: residency.residency, why, in_call, state };
        let sent = self.replica.layer.send(group.home(), &returned, &[]);
        debug!(%group, thread, residency = residency.residency, ?why, in_call, "it goes back");
        match sent {
            Ok(()) => Ok(ResidencyEnd::Returned),
            // The origin is gone, and so is the program.
            Err(_) => Ok(ResidencyEnd::Ended),
        }
    }
}
