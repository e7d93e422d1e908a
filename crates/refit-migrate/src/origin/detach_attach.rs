//! Taking the user half of a thread out of it, and putting it back: what a thread's registers mean when it stands in a call.
//!
//! A thread that leaves stays behind as its own shadow ([`refit_sys::shadow_stub`]). A call that it stands in is made anew elsewhere, but for one
//! of which only the kernel knows how much is left (`ERESTART_RESTARTBLOCK`): in that the shadow stays, and the result follows.
//!
//! A thread that comes back may stand behind a call that its shadow is in. What the kernel has put into the shadow's registers for an
//! interrupted call (its wish to make it again, or not, as the handler of the signal wants) is put into the thread's: so it is the kernel
//! that decides, as ever.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use refit_sys::shadow_stub::{self, Place, Slot};
use refit_sys::trace::{Registers, Tracee};
use refit_tracer::syscall::is_interrupted;
use refit_tracer::{Hears, Resume, StopReason, signals};

use crate::fault_injection::{self, Step};
use crate::origin::coordinator::THREAD_STOP_TIMEOUT;
use crate::origin::program_tree::ProgramTree;
use crate::origin::thread_table::{CoordinatorId, Standing};
use crate::protocol::messages::{ReturnReason, ThreadReturned};
use crate::protocol::thread_state::ThreadState;

/// How long a thread may take to stop that could as well go on.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// In the place of a call's result: it has not been made, and its thread, which is called back, makes it at home (`ERESTARTNOINTR`, which the
/// kernel tells nobody).
pub(crate) const NOT_MADE: i64 = -513;
/// Only the kernel knows what is left of the call.
const RESTART_BLOCK: i64 = -516;

/// Where a thread's shadow is.
#[derive(Clone, Copy)]
pub(crate) struct ShadowRef {
    /// Whose it is.
    pub(crate) coordinator_id: CoordinatorId,
    /// The code that it stays in.
    pub(crate) code: u64,
    pub(crate) slot: Slot,
    /// The slot's address in the program.
    pub(crate) place: u64,
}

/// The call that a thread comes back from another instance in.
#[derive(Clone, Copy, Default)]
pub(crate) struct PendingCall {
    /// Whether it stands in one.
    pub(crate) within: bool,
    /// What it has returned, where somebody else knows.
    pub(crate) answer: Option<u64>,
}

/// ReturnReason a thread has not left.
pub(crate) enum StayReason {
    /// Its process is stopped, by job control.
    Stopped,
    /// It stands within a call that somebody has to decide about first.
    NotNow,
    /// There are signals for it, or it has written a part of what it is to write: these it is to have first, this to end. It goes on up to the
    /// end of a call.
    First,
    /// It cannot be stopped, or is gone.
    Refused(io::Error),
}

/// Takes the user half out of a thread, whose shadow stays; and whether that is in a call.
pub(crate) fn leave(
    tree: &Arc<ProgramTree>,
    id: u32,
    shadow_ref: ShadowRef,
) -> Result<(bool, ThreadState), StayReason> {
    if tree.supervisor.is_in_vfork(id) {
        return Err(StayReason::NotNow);
    }
    shadow_ref.slot.clear();
    let own = Arc::clone(tree);
    let left = tree.supervisor.order(id, STOP_TIMEOUT, move |held, stands| {
        if stands == StopReason::WithItsProcess {
            return (Err(StayReason::Stopped), Resume::GoOn);
        }
        // It may be another program meanwhile, which nothing of this one is to be put into.
        if let Some(after) = own.resume_of_other(shadow_ref.coordinator_id, id, stands) {
            return (Err(StayReason::NotNow), after);
        }
        if !between(held) || own.threads.waits_for_pages(id) {
            return (Err(StayReason::NotNow), Resume::Stay);
        }
        if signals::are_pending(held) || own.supervisor.has_short_write(id) {
            own.threads.place(shadow_ref.coordinator_id, id, Standing::Visiting);
            return (Err(StayReason::First), Resume::ToSystemCall(0));
        }
        let left = leave_by(held, shadow_ref).map_err(StayReason::Refused);
        if left.is_ok() {
            own.threads.place(shadow_ref.coordinator_id, id, Standing::Away);
        }
        (left, Resume::GoOn)
    });
    left.unwrap_or_else(|error| Err(StayReason::Refused(error)))
}

/// Whether a thread stands where its registers are its own: it was interrupted, or is back from a call.
pub(crate) fn between(held: &Tracee) -> bool {
    /// `PTRACE_EVENT_STOP`.
    const INTERRUPTED: i32 = 128;
    let interrupted =
        held.information().is_ok_and(|information| information.code() >> 8 == INTERRUPTED);
    interrupted || held.has_returned()
}

/// The signal that a thread is about to be given.
pub(crate) fn signal_of(held: &Tracee) -> i32 {
    held.information().map_or(0, |information| information.signal())
}

/// Lets a thread that was kept go on here, if nobody has to decide about it first.
pub(crate) fn go_on(tree: &Arc<ProgramTree>, coordinator_id: CoordinatorId, id: u32) {
    let own = Arc::clone(tree);
    tree.supervisor.order_kept(id, move |held| {
        if let Some(after) = own.resume_of_other(coordinator_id, id, StopReason::Kept) {
            return after;
        }
        let free = between(held) && !own.threads.waits_for_pages(id);
        if free { Resume::GoOn } else { Resume::Stay }
    });
}

/// Has a shadow stand until its thread [comes](come), who then does not have to wait for it.
pub(crate) fn hold(tree: &Arc<ProgramTree>, coordinator_id: CoordinatorId, id: u32) {
    let own = Arc::clone(tree);
    // As above: it may be another program by then.
    tree.supervisor.order_later(id, move |_, stands| {
        own.resume_of_other(coordinator_id, id, stands).unwrap_or(Resume::Stay)
    });
}

fn leave_by(held: &mut Tracee, shadow_ref: ShadowRef) -> io::Result<(bool, ThreadState)> {
    fault_injection::reach(Step::Leave)?;
    let stood = held.registers()?;
    let (mut user, mut shadow) = (stood, stood);
    let number = stood.orig_rax;
    let called = number.cast_signed() >= 0;
    let in_call = called && stood.rax.cast_signed() == RESTART_BLOCK;
    if in_call {
        shadow_stub::enter_in_call(&mut shadow, shadow_ref.code, shadow_ref.place);
    } else {
        shadow_stub::enter(&mut shadow, shadow_ref.code, shadow_ref.place);
        if called && is_interrupted(stood.rax) {
            shadow_stub::step_back(&mut user, number);
            // Within calls as `sigsuspend` another mask holds than the thread's, which is told here: a signal that comes now is to wait until the call is
            // made again, and to end it.
            held.set_signal_mask(held.signal_mask()?)?;
        }
        user.orig_rax = u64::MAX;
    }
    let half = ThreadState::of(held, &user)?;
    held.set_registers(&shadow)?;
    if in_call {
        shadow_ref.slot.under_way(number);
    }
    Ok((in_call, half))
}

/// How a thread goes on that has its user half again, unless it is about to be given a signal: that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterReturn {
    /// With its instructions.
    On,
    /// Up to the end of its next call.
    Call,
    /// Not yet, whatever it is about to be given.
    Stay,
}

impl AfterReturn {
    /// As why it is back asks for.
    pub(crate) fn after(why: ReturnReason) -> Self {
        match why {
            ReturnReason::Call => Self::Call,
            ReturnReason::Recalled | ReturnReason::Asked | ReturnReason::Exception => Self::On,
        }
    }
}

/// What a thread has got that has its user half again: whether it was about to be given a signal.
pub(crate) type SignalPending = io::Result<bool>;

/// Puts the user half back into a thread, which goes on as `after_return` says.
pub(crate) fn come(
    tree: &Arc<ProgramTree>,
    id: u32,
    shadow_ref: ShadowRef,
    half: &ThreadState,
    call: PendingCall,
    after_return: AfterReturn,
) -> SignalPending {
    let (own, half) = (Arc::clone(tree), half.clone());
    let work = move |held: &mut Tracee, stands| {
        come_to(&own, (held, stands), shadow_ref, &half, call, after_return)
    };
    tree.supervisor.order_and_hear(id, THREAD_STOP_TIMEOUT, work, Hears::Later)?
}

/// The same with a thread that is in no call, without waiting; `tell` is told what it has got once it goes on, and `None` if its shadow is about to
/// be given a signal, and it has got nothing yet. Nothing is told of a thread that is no more.
pub(crate) fn come_at_once(
    tree: &Arc<ProgramTree>,
    shadow_ref: ShadowRef,
    came: Box<ThreadReturned>,
    tell: impl FnOnce(Box<ThreadReturned>, Option<SignalPending>) + Send + 'static,
) {
    let own = Arc::clone(tree);
    tree.supervisor.order_and_tell(came.thread, move |held, stands| {
        if !between(held) {
            let others = own.resume_of_other(shadow_ref.coordinator_id, came.thread, stands);
            return (others.unwrap_or(Resume::Stay), Box::new(move || tell(came, None)));
        }
        let (after_return, call) = (AfterReturn::after(came.why), PendingCall::default());
        let (has, after) =
            come_to(&own, (held, stands), shadow_ref, &came.half, call, after_return);
        (after, Box::new(move || tell(came, Some(has))))
    });
}

fn come_to(
    tree: &ProgramTree,
    (held, stands): (&mut Tracee, StopReason),
    shadow_ref: ShadowRef,
    half: &ThreadState,
    call: PendingCall,
    after_return: AfterReturn,
) -> (SignalPending, Resume) {
    let id = held.thread();
    // It may be another program meanwhile, which nothing of this one is to be put into.
    if let Some(after) = tree.resume_of_other(shadow_ref.coordinator_id, id, stands) {
        return (Err(io::Error::from_raw_os_error(libc::ESRCH)), after);
    }
    let done = come_by(held, shadow_ref, half, call);
    // What its shadow has written a part of, it writes on.
    if !matches!(done, Ok(true)) {
        tree.supervisor.forget_short_write(id);
    }
    // Its coordinator has been told so, or will be.
    let signal = (!between(held)).then(|| signal_of(held));
    let after = match (after_return, signal) {
        (AfterReturn::Stay, _) => Resume::Stay,
        (_, Some(signal)) => Resume::Once(signal),
        (AfterReturn::Call, None) => Resume::ToSystemCall(0),
        (AfterReturn::On, None) => Resume::GoOn,
    };
    let standing =
        if matches!(after, Resume::ToSystemCall(_)) { Standing::Visiting } else { Standing::Home };
    tree.threads.place(shadow_ref.coordinator_id, id, standing);
    (done.map(|_| signal.is_some()), after)
}

/// Gives a thread its registers; whether it stands behind a call as its shadow does.
fn come_by(
    held: &Tracee,
    shadow_ref: ShadowRef,
    half: &ThreadState,
    call: PendingCall,
) -> io::Result<bool> {
    fault_injection::reach(Step::Come)?;
    let shadow = held.registers()?;
    let mut user = half.general(shadow);
    let number = user.orig_rax;
    user.orig_rax = u64::MAX;
    let mut as_shadow = false;
    if call.within {
        // Once it has put the result there it waits for the next call: where it stands tells nothing then.
        let answer = call.answer.or_else(|| shadow_ref.slot.answer());
        match shadow_stub::place(&shadow, shadow_ref.code) {
            _ if let Some(value) = answer => user.rax = value,
            Place::At => {
                carry_on(&mut user, &shadow);
                as_shadow = true;
            }
            Place::Behind => user.rax = shadow_ref.slot.result(),
            Place::Before | Place::Outside => shadow_stub::step_back(&mut user, number),
        }
        // It may have lacked pages that are elsewhere, and has done nothing: made here, it does not (`coordinator/retry_futex.rs`).
        let failed = user.rax.cast_signed() == -i64::from(libc::EFAULT);
        if failed && number.cast_signed() == libc::SYS_futex {
            shadow_stub::step_back(&mut user, number);
            as_shadow = false;
        }
    }
    shadow_ref.slot.clear();
    half.give(held, &user).map(|()| as_shadow)
}

/// The shadow is back from the call, or was interrupted in it.
fn carry_on(user: &mut Registers, shadow: &Registers) {
    user.rax = shadow.rax;
    if is_interrupted(shadow.rax) {
        // The kernel decides by both when the thread goes on.
        user.orig_rax = shadow.orig_rax;
    }
}

/// What a shadow's call has returned that stands about to be given a signal, and does not come to say so itself.
pub(crate) fn answer_of(
    tree: &Arc<ProgramTree>,
    coordinator_id: CoordinatorId,
    id: u32,
    (code, slot): (u64, Slot),
) -> io::Result<i64> {
    let read = |held: &mut Tracee, _| (held.registers(), Resume::Stay);
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
