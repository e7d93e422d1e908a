//! Detaches the registers of a thread and attaches them again, even when the thread is stopped in a
//! system call.
//!
//! A thread that departs stays behind as its own shadow ([`refit_sys::shadow_stub`]). If it
//! is in a call, the call is restarted from the destination, unless only the kernel knows how much
//! of it is left (`ERESTART_RESTARTBLOCK`): then the shadow stays in the call, and its result is
//! sent afterwards.
//!
//! A thread may return while its shadow is in a call of the thread. If the call is interrupted, the
//! kernel has put into the shadow's registers whether it restarts the call, as the signal's handler
//! requires. Refit copies these values into the thread's registers, so the kernel decides as usual.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use refit_sys::restart::{ERESTART_RESTARTBLOCK, ERESTARTNOINTR};
use refit_sys::shadow_stub::{self, Place, Slot};
use refit_sys::trace::{Registers, Tracee};
use refit_tracer::syscall::is_interrupted;
use refit_tracer::{ResultTiming, Resume, StopReason, signals};

use crate::fault_injection::{self, Step};
use crate::origin::program_tree::{ProgramTree, THREAD_STOP_TIMEOUT};
use crate::origin::tracer_event::{CoordinatorId, Standing};
use crate::protocol::messages::{ReturnReason, ThreadReturned};
use crate::protocol::thread_state::ThreadState;

/// The time within which a thread stops that could as well go on.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// In the place of a call's result: the call was not made, and the thread, which is recalled, makes
/// it at its origin (`ERESTARTNOINTR`, which the kernel returns to no program).
pub(crate) const NOT_MADE: i64 = -ERESTARTNOINTR;
/// The result of a call of which only the kernel knows what is left (`ERESTART_RESTARTBLOCK`).
const RESTART_BLOCK: i64 = -ERESTART_RESTARTBLOCK;

/// Where a thread's shadow waits for calls.
#[derive(Clone, Copy)]
pub(crate) struct ShadowRef {
    /// The coordinator of its group.
    pub(crate) coordinator_id: CoordinatorId,
    /// The address of the stub.
    pub(crate) code: u64,
    pub(crate) slot: Slot,
    /// The slot's address in the program.
    pub(crate) place: u64,
}

/// The call in which a thread returns from another node.
#[derive(Clone, Copy, Default)]
pub(crate) struct PendingCall {
    /// Whether the thread is in a call.
    pub(crate) within: bool,
    /// The call's result, if it is known already.
    pub(crate) answer: Option<u64>,
}

/// Why a thread has not departed.
pub(crate) enum StayReason {
    /// Job control has stopped its process.
    Stopped,
    /// The thread is in a call that its coordinator or refit has to decide about first.
    NotNow,
    /// Signals are pending, which must be delivered first, or a call of its was cut short, which
    /// must end first. It goes on up to the end of a call.
    RunFirst,
    /// The thread cannot be stopped, or has ended.
    Refused(io::Error),
}

/// Takes the registers out of a thread, whose shadow stays. Returns whether the thread is in a
/// call, and its state.
pub(crate) fn detach(
    tree: &Arc<ProgramTree>,
    id: u32,
    shadow_ref: ShadowRef,
) -> Result<(bool, ThreadState), StayReason> {
    if tree.supervisor.is_in_vfork(id) {
        return Err(StayReason::NotNow);
    }
    shadow_ref.slot.clear();
    let own = Arc::clone(tree);
    let detached = tree.supervisor.order(id, STOP_TIMEOUT, move |tracee, reason| {
        if reason == StopReason::JobControl {
            return (Err(StayReason::Stopped), Resume::Continue);
        }
        // Its process may have executed another program meanwhile, which must get nothing of this
        // one.
        if let Some(resume) = own.resume_of_other(shadow_ref.coordinator_id, id, reason) {
            return (Err(StayReason::NotNow), resume);
        }
        if !is_between_calls(tracee) || own.threads.waits_for_pages(id) {
            return (Err(StayReason::NotNow), Resume::Stay);
        }
        if signals::are_pending(tracee) || own.supervisor.has_short_write(id) {
            own.threads.place(shadow_ref.coordinator_id, id, Standing::Visiting);
            return (Err(StayReason::RunFirst), Resume::ToSystemCall(0));
        }
        let detached = detach_stopped(tracee, shadow_ref).map_err(StayReason::Refused);
        if detached.is_ok() {
            own.threads.place(shadow_ref.coordinator_id, id, Standing::Away);
        }
        (detached, Resume::Continue)
    });
    detached.unwrap_or_else(|error| Err(StayReason::Refused(error)))
}

/// Returns whether a thread is stopped where its registers are its own: it was interrupted, or has
/// returned from a call.
pub(crate) fn is_between_calls(tracee: &Tracee) -> bool {
    /// `PTRACE_EVENT_STOP`.
    const INTERRUPTED: i32 = 128;
    let interrupted =
        tracee.information().is_ok_and(|information| information.code() >> 8 == INTERRUPTED);
    interrupted || tracee.has_returned()
}

/// Returns the signal that is about to be delivered to a thread.
pub(crate) fn signal_of(tracee: &Tracee) -> i32 {
    tracee.information().map_or(0, |information| information.signal())
}

/// Resumes a thread that was kept, unless something has to be decided first.
pub(crate) fn resume_here(tree: &Arc<ProgramTree>, coordinator_id: CoordinatorId, id: u32) {
    let own = Arc::clone(tree);
    tree.supervisor.order_kept(id, move |tracee| {
        if let Some(resume) = own.resume_of_other(coordinator_id, id, StopReason::Kept) {
            return resume;
        }
        let free = is_between_calls(tracee) && !own.threads.waits_for_pages(id);
        if free { Resume::Continue } else { Resume::Stay }
    });
}

/// Stops a shadow until its thread [attaches](attach), which then does not have to wait for the
/// shadow.
pub(crate) fn stop_shadow(tree: &Arc<ProgramTree>, coordinator_id: CoordinatorId, id: u32) {
    let own = Arc::clone(tree);
    // As above: it may have executed another program by then.
    tree.supervisor.order_later(id, move |_, reason| {
        own.resume_of_other(coordinator_id, id, reason).unwrap_or(Resume::Stay)
    });
}

fn detach_stopped(tracee: &mut Tracee, shadow_ref: ShadowRef) -> io::Result<(bool, ThreadState)> {
    fault_injection::reach(Step::Leave)?;
    let before = tracee.registers()?;
    let (mut user, mut shadow) = (before, before);
    let number = before.orig_rax;
    let called = number.cast_signed() >= 0;
    let in_call = called && before.rax.cast_signed() == RESTART_BLOCK;
    if in_call {
        shadow_stub::enter_in_call(&mut shadow, shadow_ref.code, shadow_ref.place);
    } else {
        shadow_stub::enter(&mut shadow, shadow_ref.code, shadow_ref.place);
        if called && is_interrupted(before.rax) {
            shadow_stub::step_back(&mut user, number);
            // Calls as `sigsuspend` replace the thread's mask while they wait, and the state has
            // the replacement: a signal that comes now must wait until the call is restarted, and
            // end it.
            tracee.set_signal_mask(tracee.signal_mask()?)?;
        }
        user.orig_rax = u64::MAX;
    }
    let state = ThreadState::of(tracee, &user)?;
    tracee.set_registers(&shadow)?;
    if in_call {
        shadow_ref.slot.under_way(number);
    }
    Ok((in_call, state))
}

/// The way in which a thread goes on that has its registers back. A signal that is about to be
/// delivered comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterReturn {
    /// The thread runs on.
    On,
    /// The thread runs up to the end of its next call.
    Call,
    /// The thread stays, whatever signal is about to be delivered.
    Stay,
}

impl AfterReturn {
    /// Returns how a thread goes on that has returned for this reason.
    pub(crate) fn of(why: ReturnReason) -> Self {
        match why {
            ReturnReason::Call => Self::Call,
            ReturnReason::Recalled | ReturnReason::Asked | ReturnReason::Exception => Self::On,
        }
    }
}

/// The outcome for a thread that has its registers back.
pub(crate) struct Restoration {
    pub(crate) pending: SignalPending,
    /// From the message of its return until it ran on.
    pub(crate) took: Duration,
}

/// Whether a signal was about to be delivered to the shadow when the thread got its registers back.
pub(crate) type SignalPending = io::Result<bool>;

/// Gives a thread its registers back, and resumes it as `after_return` says.
pub(crate) fn attach(
    tree: &Arc<ProgramTree>,
    id: u32,
    shadow_ref: ShadowRef,
    state: &ThreadState,
    call: PendingCall,
    after_return: AfterReturn,
) -> SignalPending {
    let (own, state) = (Arc::clone(tree), state.clone());
    let work = move |tracee: &mut Tracee, reason| {
        attach_own(&own, (tracee, reason), shadow_ref, &state, call, after_return)
    };
    tree.supervisor.order_with_timing(id, THREAD_STOP_TIMEOUT, work, ResultTiming::AfterResume)?
}

/// As [`attach`], without waiting, for a thread that is in no call. `notify` receives the result
/// once the thread goes on, or `None` if a signal is about to be delivered to its shadow, and
/// nothing was done yet. It is not called if the thread has ended.
pub(crate) fn attach_later(
    tree: &Arc<ProgramTree>,
    shadow_ref: ShadowRef,
    returned: Box<ThreadReturned>,
    notify: impl FnOnce(Box<ThreadReturned>, Option<SignalPending>) + Send + 'static,
) {
    let own = Arc::clone(tree);
    tree.supervisor.order_and_notify(returned.thread, move |tracee, reason| {
        if !is_between_calls(tracee) {
            let others = own.resume_of_other(shadow_ref.coordinator_id, returned.thread, reason);
            return (others.unwrap_or(Resume::Stay), Box::new(move || notify(returned, None)));
        }
        let (after_return, call) = (AfterReturn::of(returned.why), PendingCall::default());
        let (has, resume) =
            attach_own(&own, (tracee, reason), shadow_ref, &returned.state, call, after_return);
        (resume, Box::new(move || notify(returned, Some(has))))
    });
}

fn attach_own(
    tree: &ProgramTree,
    (tracee, reason): (&mut Tracee, StopReason),
    shadow_ref: ShadowRef,
    state: &ThreadState,
    call: PendingCall,
    after_return: AfterReturn,
) -> (SignalPending, Resume) {
    let id = tracee.thread();
    // Its process may have executed another program meanwhile, which must get nothing of this one.
    if let Some(resume) = tree.resume_of_other(shadow_ref.coordinator_id, id, reason) {
        return (Err(io::Error::from_raw_os_error(libc::ESRCH)), resume);
    }
    let done = attach_stopped(tracee, shadow_ref, state, call);
    // If its shadow's call was cut short, the thread goes on with the rest of the call.
    if !matches!(done, Ok(true)) {
        tree.supervisor.forget_short_write(id);
    }
    // Its coordinator has received this event, or will.
    let signal = (!is_between_calls(tracee)).then(|| signal_of(tracee));
    let resume = match (after_return, signal) {
        (AfterReturn::Stay, _) => Resume::Stay,
        (_, Some(signal)) => Resume::Once(signal),
        (AfterReturn::Call, None) => Resume::ToSystemCall(0),
        (AfterReturn::On, None) => Resume::Continue,
    };
    let standing =
        if matches!(resume, Resume::ToSystemCall(_)) { Standing::Visiting } else { Standing::Home };
    tree.threads.place(shadow_ref.coordinator_id, id, standing);
    (done.map(|_| signal.is_some()), resume)
}

/// Gives a thread its registers. Returns whether it stands behind a call as its shadow does.
fn attach_stopped(
    tracee: &Tracee,
    shadow_ref: ShadowRef,
    state: &ThreadState,
    call: PendingCall,
) -> io::Result<bool> {
    fault_injection::reach(Step::Come)?;
    let shadow = tracee.registers()?;
    let mut user = state.general();
    let number = user.orig_rax;
    user.orig_rax = u64::MAX;
    let mut as_shadow = false;
    if call.within {
        // A shadow that has put the result there waits for the next call: its position means
        // nothing then.
        let answer = call.answer.or_else(|| shadow_ref.slot.answer());
        match shadow_stub::place(&shadow, shadow_ref.code) {
            _ if let Some(value) = answer => user.rax = value,
            Place::At => {
                take_result(&mut user, &shadow);
                as_shadow = true;
            }
            Place::Behind => user.rax = shadow_ref.slot.result(),
            Place::Before | Place::Outside => shadow_stub::step_back(&mut user, number),
        }
        // The call may have lacked pages that are at another node, and has done nothing. Restarted
        // here, it finds them (`coordinator/retry_futex.rs`).
        let failed = user.rax.cast_signed() == -i64::from(libc::EFAULT);
        if failed && number.cast_signed() == libc::SYS_futex {
            shadow_stub::step_back(&mut user, number);
            as_shadow = false;
        }
    }
    shadow_ref.slot.clear();
    state.give(tracee, &user).map(|()| as_shadow)
}

/// Takes over the result of a shadow that is back from the call, or was interrupted in it.
fn take_result(user: &mut Registers, shadow: &Registers) {
    user.rax = shadow.rax;
    if is_interrupted(shadow.rax) {
        // The kernel decides by both registers when the thread goes on.
        user.orig_rax = shadow.orig_rax;
    }
}

/// Returns the result of the call of a shadow to which a signal is about to be delivered, and which
/// does not get to leave the result in its slot.
pub(crate) fn answer_of(
    tree: &Arc<ProgramTree>,
    coordinator_id: CoordinatorId,
    id: u32,
    (code, slot): (u64, Slot),
) -> io::Result<i64> {
    let read = |tracee: &mut Tracee, _| (tracee.registers(), Resume::Stay);
    let registers = tree.order_of(coordinator_id, id, THREAD_STOP_TIMEOUT, read)??;
    match shadow_stub::place(&registers, code) {
        _ if let Some(value) = slot.answer() => Ok(value.cast_signed()),
        Place::At if !is_interrupted(registers.rax) => {
            slot.clear();
            Ok(registers.rax.cast_signed())
        }
        Place::Behind => Ok(slot.result().cast_signed()),
        _ => Ok(NOT_MADE),
    }
}
