//! Stops single tasks that run in a program's memory, or proves that they need not be stopped.
//!
//! A task is a thread of the program, or of another process that shares its memory: the child of a
//! `vfork` until it execs, or one made by `clone` with `CLONE_VM`. All of them run the same code,
//! so all have to stop.
//!
//! *A task that does not stop need not be stopped.* The kernel handles an interruption before the
//! task's next instruction in user space (`exit_to_user_mode_loop`). So once the interruption is
//! requested, a task that waits in the kernel where no signal reaches it (state `D`: a thread that
//! waits for the child of its `vfork`, or for a device) runs no code of the program before it has
//! stopped. The position at which it will continue is known ([`refit_sys::process::waits`]). Such a
//! task cannot make calls for refit, and its program counter cannot be moved.

use std::time::{Duration, Instant};

use refit_sys::process::{Waits, life, waits};
use refit_sys::restart::{self, Restart};
use refit_sys::status::Status;
use refit_sys::trace::{RETURNING, Stop, Tracee};

use super::refusal::Refusal;

/// Time that a task may take to stop before its state is examined.
pub(super) const GRACE: Duration = Duration::from_millis(5);

/// The state in which a task was found once it was asked to stop.
#[derive(Debug)]
pub(super) enum StopOutcome {
    /// Stopped.
    Stopped(Tracee),
    /// Waits in the kernel, and stops before it runs the program's code again.
    Asleep(Tracee, Waits),
    /// Has ended, or has other memory now.
    Gone,
}

/// Deadlines of one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// Deadline for tasks that wait where they cannot be examined.
    pub(super) waiting: Instant,
    /// Deadline for tasks that only need a processor.
    pub(super) running: Instant,
    /// Time that a task may take to stop before its state is examined: [`GRACE`], besides in tests.
    pub(super) grace: Duration,
}

/// Asks a task to stop; `None` if it has ended.
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

/// Waits until a task of the program is stopped. A call that the stop ended is then set to be
/// restarted when the task continues, even if refit is killed.
pub(super) fn settle(
    program: u32,
    is_own: bool,
    mut held: Tracee,
    deadlines: Deadlines,
) -> Result<StopOutcome, (Tracee, Refusal)> {
    let thread = held.thread();
    loop {
        let slice = (Instant::now() + deadlines.grace).min(deadlines.running);
        match held.settle(slice) {
            Ok(Stop::Exec) if is_own => {
                return Err((held, Refusal::Replaced { id: program }));
            }
            Ok(Stop::Exec) => return Ok(StopOutcome::Gone),
            Ok(_) => {
                redo(&held);
                return Ok(StopOutcome::Stopped(held));
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => return Ok(StopOutcome::Gone),
                Some(libc::ETIMEDOUT) => {}
                _ => {
                    let refusal = Refusal::of_tracing(program, "wait for a thread", error);
                    return Err((held, refusal));
                }
            },
        }
        if let Some(waits) = asleep(thread) {
            return Ok(StopOutcome::Asleep(held, waits));
        }
        // A task in state t has stopped since the last look.
        let stops = life(thread).is_some_and(|life| matches!(life.state, b'R' | b't'));
        if Instant::now() >= if stops { deadlines.running } else { deadlines.waiting } {
            let refusal = Refusal::restless(program, thread);
            return Err((held, refusal));
        }
    }
}

/// Makes the kernel restart a call that the stop ended with `EINTR`.
fn redo(held: &Tracee) {
    // A task that was killed meanwhile has no registers.
    let Ok(registers) = held.registers() else { return };
    if let Some(again) = restart::redo(&registers) {
        let _ = held.set_registers(&again);
    }
}

/// Releases a task that was asked to stop and has not been seen to stop.
pub(super) fn let_go_unseen(mut held: Tracee, until: Instant) {
    match held.settle(until) {
        Ok(Stop::Event) => {
            redo(&held);
            // The task is stopped; if this fails, it is released when the tracing thread ends.
            let _ = held.let_go();
        }
        Ok(_) => drop(held.let_go()),
        // The task is released when the thread that traces it ends.
        Err(_) => held.leave(),
    }
}

/// Whether a stop can end a call, or shorten it.
pub(super) fn ends_for_a_stop(call: i64) -> bool {
    !matches!(restart::of(call.cast_unsigned()), Some(Restart::Kernel))
}

/// Returns the position of a task that waits where no signal wakes it.
fn asleep(thread: u32) -> Option<Waits> {
    let uninterruptible = || life(thread).is_some_and(|life| life.state == b'D');
    // The task may have continued between two reads of the same state; it stops then.
    let (before, found, after) = (uninterruptible(), waits(thread), uninterruptible());
    found.filter(|_| before && after)
}

fn has_ended(thread: u32) -> bool {
    life(thread).is_none_or(refit_sys::process::Life::ended)
}

fn tracer(thread: u32) -> Option<u32> {
    Status::of(thread).ok()?.number("TracerPid").filter(|&by| by != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::process::{Child, Command, Stdio};

    struct Waiting(Child);

    impl Drop for Waiting {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A task that stops between two looks at it is not taken for one that does not stop: it would
    /// be released, and its call would fail with `EINTR`.
    #[test]
    fn a_task_that_stops_late_has_stopped() {
        let waiting = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut waiting = Waiting(waiting.expect("it starts"));
        // Until it has read once, it may be asleep in execve.
        let mut echo = [0];
        waiting.0.stdin.as_mut().expect("it is piped").write_all(b"x").expect("it reads");
        let echoed = waiting.0.stdout.as_mut().expect("it is piped").read_exact(&mut echo);
        echoed.expect("it answers");
        let id = waiting.0.id();
        for round in 0..20_000 {
            let held = seize(id, id).expect("nobody traces it").expect("it has not ended");
            let now = Instant::now();
            let running = now + Duration::from_secs(60);
            let deadlines = Deadlines { waiting: now, running, grace: Duration::ZERO };
            match settle(id, true, held, deadlines) {
                Ok(StopOutcome::Stopped(held)) => held.let_go().expect("it is stopped"),
                Ok(other) => panic!("round {round}: {other:?}"),
                Err((held, refusal)) => {
                    held.leave();
                    panic!("round {round}: {refusal}");
                }
            }
        }
    }
}
