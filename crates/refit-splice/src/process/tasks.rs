//! Which tasks have a program's memory, and how each of them is kept from running its code.
//!
//! A task is a thread of the program, or of another process that shares its memory: the child of a `vfork` until it runs another program,
//! what `clone` with `CLONE_VM` has made. Every one of them runs the same code, so every one has to stand.
//!
//! *A task that does not stop need not.* An interruption is seen to by the kernel before the task's next instruction in user space
//! (`exit_to_user_mode_loop`): from the moment at which it is asked for, a task that waits in the kernel where nothing reaches it (state `D`: the
//! thread that waits for the child of its `vfork`, or for a device) runs no code of the program without having stopped. It is known where
//! it will go on ([`refit_sys::process::waits`]); it only can make no call, and cannot be sent elsewhere.

use std::time::{Duration, Instant};

use refit_sys::process::{Waits, life, waits};
use refit_sys::restart::{self, Restart};
use refit_sys::status::Status;
use refit_sys::trace::{RETURNING, Stop, Tracee};

use super::refusal::Refusal;

/// How long a task may take to stop before it is looked at why it does not.
const GRACE: Duration = Duration::from_millis(5);

/// How a task has been brought to a stand.
#[derive(Debug)]
pub(super) enum Stood {
    /// It is stopped.
    Stopped(Tracee),
    /// It waits in the kernel, and stops before it runs its program again.
    Asleep(Tracee, Waits),
    /// It has ended, or has other memory now.
    Gone,
}

/// How long tasks are waited for, counted from the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until when those are waited for that wait where they cannot be seen to.
    pub(super) waiting: Instant,
    /// Until when those are waited for that only need a processor.
    pub(super) running: Instant,
}

/// Asks a task to stop; `None`: it has ended.
pub(super) fn seize(id: u32, thread: u32) -> Result<Option<Tracee>, Refusal> {
    let held = Tracee::seize_with(thread, RETURNING);
    match held.and_then(|held| held.interrupt().map(|()| held)) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(_) if has_ended(thread) => Ok(None),
        Err(error) => match tracer(thread) {
            Some(by) => Err(Refusal::Traced { id, by }),
            None => Err(Refusal::of_tracing(id, "trace a thread", error)),
        },
    }
}

/// Waits until a task of the program stands. A call that the stop has ended is made again when it goes on, from here on
/// whatever becomes of refit.
pub(super) fn settle(
    program: u32,
    is_own: bool,
    mut held: Tracee,
    patience: Patience,
) -> Result<Stood, (Tracee, Refusal)> {
    let thread = held.thread();
    loop {
        let slice = (Instant::now() + GRACE).min(patience.running);
        match held.settle(slice) {
            Ok(Stop::Exec) if is_own => {
                return Err((held, Refusal::Replaced { id: program }));
            }
            Ok(Stop::Exec) => return Ok(Stood::Gone),
            Ok(_) => {
                redo(&held);
                return Ok(Stood::Stopped(held));
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => return Ok(Stood::Gone),
                Some(libc::ETIMEDOUT) => {}
                _ => {
                    let refusal = Refusal::of_tracing(program, "wait for a thread", error);
                    return Err((held, refusal));
                }
            },
        }
        if let Some(waits) = asleep(thread) {
            return Ok(Stood::Asleep(held, waits));
        }
        let now = Instant::now();
        let runs = life(thread).is_some_and(|life| life.state == b'R');
        if now >= if runs { patience.running } else { patience.waiting } {
            let refusal = Refusal::restless(program, thread);
            return Err((held, refusal));
        }
    }
}

/// Has a call that the stop has ended with `EINTR` be made again.
fn redo(held: &Tracee) {
    // One that was killed meanwhile has nothing to go on with.
    let Ok(registers) = held.registers() else { return };
    if let Some(again) = restart::redo(&registers) {
        let _ = held.set_registers(&again);
    }
}

/// Lets a task go that was asked to stop and was not seen to.
pub(super) fn let_go_unseen(mut held: Tracee, until: Instant) {
    match held.settle(until) {
        Ok(Stop::Event) => {
            redo(&held);
            // It is stopped; what remains to be said is not of interest.
            let _ = held.let_go();
        }
        Ok(_) => drop(held.let_go()),
        // It is let go when the thread that traces it ends.
        Err(_) => held.leave(),
    }
}

/// Whether a call can end, or end early, for a stop.
pub(super) fn ends_for_a_stop(call: i64) -> bool {
    !matches!(restart::of(call.cast_unsigned()), Some(Restart::Kernel))
}

/// Where a task waits that nothing wakes but what it waits for.
fn asleep(thread: u32) -> Option<Waits> {
    let uninterruptible = || life(thread).is_some_and(|life| life.state == b'D');
    // Between two looks at the same state it may have gone on; then it stops.
    let (before, found, after) = (uninterruptible(), waits(thread), uninterruptible());
    found.filter(|_| before && after)
}

fn has_ended(thread: u32) -> bool {
    life(thread).is_none_or(refit_sys::process::Life::ended)
}

fn tracer(thread: u32) -> Option<u32> {
    Status::of(thread).ok()?.number("TracerPid").filter(|&by| by != 0)
}
