//! Taking the user half of a thread out of it, and putting it back: what a thread's registers mean when it stands in a call.
//!
//! A thread that leaves stays behind as its own shadow ([`refit_sys::park`]). A call that it stands in is made anew elsewhere, but for one
//! of which only the kernel knows how much is left (`ERESTART_RESTARTBLOCK`): in that the shadow stays, and the result follows.
//!
//! A thread that comes back may stand behind a call that its shadow is in. What the kernel has put into the shadow's registers for an
//! interrupted call (its wish to make it again, or not, as the handler of the signal wants) is put into the thread's: so it is the kernel
//! that decides, as ever.

use std::io;
use std::sync::Arc;

use refit_sys::park::{self, Place, Slot};
use refit_sys::trace::{Held, Registers, SystemCall};

use super::custodian::PATIENCE;
use super::half::UserHalf;
use crate::tree::moves::{Standing, interrupted};
use crate::tree::{After, Stands, Tree};

/// Stands for the signal that a thread is about to be given.
pub(super) const PENDING: i32 = -1;
/// Only the kernel knows what is left of the call.
const RESTART_BLOCK: i64 = -516;

/// Where a thread's shadow is.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) process: u32,
    /// The code that it stays in.
    pub(super) code: u64,
    pub(super) slot: Slot,
    /// The slot's address in the program.
    pub(super) place: u64,
}

/// Why a thread has not left.
pub(super) enum Stays {
    /// Its process is stopped, by job control; or it stands within a call that somebody has to decide about first.
    NotNow,
    /// There are signals for it, which it is to have first: it goes on up to its next call.
    Signals,
    /// It cannot be stopped, or is gone.
    Refused(io::Error),
}

/// Takes the user half out of a thread, whose shadow stays; and whether that is in a call.
pub(super) fn leave(tree: &Arc<Tree>, id: u32, way: Way) -> Result<(bool, UserHalf), Stays> {
    if tree.lends(id) {
        return Err(Stays::NotNow);
    }
    way.slot.clear();
    let moves = Arc::clone(tree);
    let left = tree.order(id, PATIENCE, move |held, stands| {
        if stands == Stands::WithItsProcess {
            return (Err(Stays::NotNow), After::GoOn);
        }
        if !between(held) {
            return (Err(Stays::NotNow), After::Stay);
        }
        if signals(id) {
            moves.moves.place(way.process, id, Standing::Visiting);
            return (Err(Stays::Signals), After::ToSystemCall(0));
        }
        let left = leave_by(held, way).map_err(Stays::Refused);
        if left.is_ok() {
            moves.moves.place(way.process, id, Standing::Away);
        }
        (left, After::GoOn)
    });
    left.unwrap_or_else(|error| Err(Stays::Refused(error)))
}

/// Whether a thread stands where its registers are its own: it was interrupted, or is back from a call.
fn between(held: &Held) -> bool {
    /// `PTRACE_EVENT_STOP`.
    const INTERRUPTED: i32 = 128;
    let interrupted =
        held.information().is_ok_and(|information| information.code() >> 8 == INTERRUPTED);
    interrupted || matches!(held.system_call(), Ok(SystemCall::Exit { .. }))
}

/// Whether a thread is about to be given signals when it goes on.
fn signals(id: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/status")) else { return false };
    let set = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or_default()
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}

/// Lets a thread that stands go on here, if nobody has to decide about it first.
pub(super) fn go_on(tree: &Tree, id: u32) {
    let on = |held: &mut Held, _| ((), if between(held) { After::GoOn } else { After::Stay });
    // One that is killed meanwhile tells so.
    let _ = tree.order(id, PATIENCE, on);
}

fn leave_by(held: &mut Held, way: Way) -> io::Result<(bool, UserHalf)> {
    let stood = held.registers()?;
    let (mut user, mut shadow) = (stood, stood);
    let number = stood.orig_rax;
    let called = number.cast_signed() >= 0;
    let in_call = called && stood.rax.cast_signed() == RESTART_BLOCK;
    if in_call {
        park::enter_in_call(&mut shadow, way.code, way.place);
    } else {
        park::enter(&mut shadow, way.code, way.place);
        if called && interrupted(stood.rax) {
            park::step_back(&mut user, number);
        }
        user.orig_rax = u64::MAX;
    }
    let half = UserHalf::of(held, &user)?;
    held.set_registers(&shadow)?;
    if in_call {
        way.slot.under_way(number);
    }
    Ok((in_call, half))
}

/// Puts the user half back into a thread, which goes on as `after` says.
pub(super) fn come(
    tree: &Arc<Tree>,
    id: u32,
    way: Way,
    half: &UserHalf,
    in_call: bool,
    after: After,
) -> io::Result<()> {
    let (moves, half) = (Arc::clone(tree), half.clone());
    tree.order(id, PATIENCE, move |held, _| {
        let done = come_by(held, way, &half, in_call);
        let after = match after {
            After::Once(PENDING) => {
                let signal = held.information().map_or(0, |information| information.signal());
                After::Once(signal)
            }
            after => after,
        };
        let standing = if matches!(after, After::ToSystemCall(_)) {
            Standing::Visiting
        } else {
            Standing::Home
        };
        moves.moves.place(way.process, id, standing);
        (done, after)
    })?
}

fn come_by(held: &Held, way: Way, half: &UserHalf, in_call: bool) -> io::Result<()> {
    let shadow = held.registers()?;
    let mut user = half.general(shadow);
    let number = user.orig_rax;
    user.orig_rax = u64::MAX;
    if in_call {
        // Once it has put the result there it waits for the next call: where it stands tells nothing then.
        let answer = way.slot.answer();
        match park::place(&shadow, way.code) {
            _ if let Some(value) = answer => user.rax = value,
            Place::At => carry_on(&mut user, &shadow),
            Place::Behind => user.rax = way.slot.result(),
            Place::Before | Place::Outside => park::step_back(&mut user, number),
        }
    }
    way.slot.clear();
    half.give(held, &user)
}

/// The shadow is back from the call, or was interrupted in it.
fn carry_on(user: &mut Registers, shadow: &Registers) {
    user.rax = shadow.rax;
    if interrupted(shadow.rax) {
        // The kernel decides by both when the thread goes on.
        user.orig_rax = shadow.orig_rax;
    }
}

/// What a shadow's call has returned that stands about to be given a signal, and does not come to say so itself.
pub(super) fn answer_of(tree: &Tree, id: u32, code: u64, slot: Slot) -> io::Result<i64> {
    let registers = tree.order(id, PATIENCE, |held, _| (held.registers(), After::Stay))??;
    let again = || io::Error::from_raw_os_error(libc::EINTR);
    match park::place(&registers, code) {
        _ if let Some(value) = slot.answer() => Ok(value.cast_signed()),
        Place::At if !interrupted(registers.rax) => {
            slot.clear();
            Ok(registers.rax.cast_signed())
        }
        Place::Behind => Ok(slot.result().cast_signed()),
        _ => Err(again()),
    }
}
