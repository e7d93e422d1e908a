//! Restarts calls that are interrupted although no handler of the program runs: by a signal that
//! the program ignores, or by refit.
//!
//! The kernel drops an ignored signal when it is sent, except where the receiver is traced, since
//! the tracer may want to know. So it interrupts calls, and those that the kernel never restarts
//! would fail with `EINTR` (signal(7)). The same happens where refit stops a thread. If no handler
//! runs, such a call is restarted: the thread gets the result by which the kernel itself restarts
//! calls (`ERESTARTNOHAND`), and the kernel decides once all signals are delivered. A handler that
//! runs meanwhile ends the call with `EINTR`, as usual.
//!
//! *Time limits.* Refit does not know when a call began. From its first interruption on it follows
//! the call to its end, and restarts it with what is left of its limit since that interruption:
//!
//! ```text
//!   interrupted ──► deadline noted ──► resumed: its limit is what is left ──► it returns
//!        ▲                                  │
//!        └── its own arguments ◄────────────┴── interrupted once more, or a signal comes
//! ```
//!
//! As in [`short_writes`](crate::supervisor::short_writes), every observer of the stopped
//! thread finds the arguments that the program has given. A limit in memory (`struct timespec`) is
//! replaced by one behind the code of the vDSO ([`slack`]). Calls whose limit is a property of a
//! socket (`SO_RCVTIMEO`) begin it anew each time.

use std::time::{Duration, Instant};

use refit_sys::foreign::Memory;
use refit_sys::restart::{self, ERESTARTNOHAND, LimitedCall};
use refit_sys::trace::{Event, Registers, SystemCall, Tracee};
use refit_sys::{maps, slack};

use crate::resume::Resume;
use crate::signals::ignored;
use crate::supervisor::records::Restart;
use crate::supervisor::tasks::TaskTable;

/// Restores the arguments that the program has given, before anybody else handles an event of a
/// thread.
pub(super) fn on_event(tasks: &TaskTable, tracee: &Tracee, event: Event) {
    let replaced = |restart: Restart| restart.own.is_some();
    if !tasks.is(tracee.thread(), |task| task.restart.is_some_and(replaced)) {
        return;
    }
    if matches!(event, Event::Seccomp { .. }) || is_entry(tracee, event) {
        // Inside the call.
        return;
    }
    let own = tasks.find(tracee.thread(), |task| task.restart.as_mut()?.own.take());
    let Some(own) = own else { return };
    // This fails only if the thread was killed meanwhile.
    let _ = tracee.registers().and_then(|mut registers| {
        restart::set_arguments(&mut registers, own);
        tracee.set_registers(&registers)
    });
}

/// Has a call restarted that this signal must not end, as the signal is delivered. Returns
/// whether the call is followed to its end; the caller says by `follow` whether it may be.
pub(super) fn on_signal(tasks: &TaskTable, tracee: &Tracee, signal: i32, follow: bool) -> bool {
    if !ignored(tracee.thread(), signal) {
        forget(tasks, tracee.thread());
        return false;
    }
    on_interrupt(tasks, tracee, follow);
    shorten(tasks, tracee)
}

/// Has a call restarted that would end for the interruption alone, when the thread goes on. It
/// is followed if it has a time limit and the caller wants that.
pub(super) fn on_interrupt(tasks: &TaskTable, tracee: &Tracee, follow: bool) {
    let task = tracee.thread();
    let Ok(mut registers) = tracee.registers() else { return };
    let known = tasks.find(task, |task| task.restart);
    if let Some(Restart { call: (number, behind), .. }) = known
        && (registers.rip.wrapping_add(SYSCALL), registers.rax) == (behind, number)
    {
        // It has not begun to make the call again.
        (registers.rip, registers.orig_rax) = (behind, number);
        registers.rax = (-ERESTARTNOHAND).cast_unsigned();
    }
    let limited = limit(task, &registers);
    if !restart::is_redone(&registers, registers.orig_rax) && limited.is_none() {
        return forget(tasks, task);
    }
    let now = Instant::now();
    let known = known.filter(|known| known.call == (registers.orig_rax, registers.rip));
    let wait = known.or_else(|| {
        let limited = limited?;
        let deadline = now.checked_add(limited.whole)?;
        let call = (registers.orig_rax, registers.rip);
        Some(Restart { deadline, limited, call, own: None, place: None })
    });
    let late = wait.filter(|wait| now >= wait.deadline).map(|wait| wait.limited.late);
    registers.rax = late.unwrap_or(-ERESTARTNOHAND).cast_unsigned();
    // This fails only if the thread was killed meanwhile.
    let set = tracee.set_registers(&registers).is_ok();
    match wait.filter(|_| set && late.is_none() && follow) {
        Some(wait) => tasks.entry(task, |task| task.restart = Some(wait)),
        None => forget(tasks, task),
    }
}

/// Returns how a thread goes on that would go on in this way: one whose call is followed stops
/// at the end of that.
pub(super) fn adjust(tasks: &TaskTable, tracee: &Tracee, resume: Resume) -> Resume {
    match resume {
        Resume::Continue | Resume::ToSystemCall(0) if shorten(tasks, tracee) => {
            Resume::ToSystemCall(0)
        }
        Resume::Once(_) | Resume::ToSystemCall(1..) => {
            forget(tasks, tracee.thread());
            resume
        }
        _ => resume,
    }
}

/// Replaces the limit of a call that is about to be restarted by what is left of it. Returns
/// whether the thread has a call that is followed.
fn shorten(tasks: &TaskTable, tracee: &Tracee) -> bool {
    let task = tracee.thread();
    let Some(mut wait) = tasks.find(task, |task| task.restart) else { return false };
    let Ok(mut registers) = tracee.registers() else { return false };
    if (registers.orig_rax, registers.rip) != wait.call {
        // The thread was given other registers.
        forget(tasks, task);
        return false;
    }
    if wait.own.is_some() || registers.rax.cast_signed() != -ERESTARTNOHAND {
        return true;
    }
    let remains = wait.deadline.saturating_duration_since(Instant::now());
    if wait.limited.is_in_memory() {
        wait.place = wait.place.or_else(|| place(tasks, task));
        let written = wait.place.and_then(|place| write(task, place, remains));
        if written.is_none() {
            // Followed all the same: it ends with the first interruption after its deadline.
            return true;
        }
    }
    let own = restart::arguments(&registers);
    let place = wait.place.unwrap_or_default();
    restart::set_arguments(&mut registers, wait.limited.shortened(&own, remains, place));
    if tracee.set_registers(&registers).is_ok() {
        wait.own = Some(own);
        tasks.entry(task, |task| task.restart = Some(wait));
    }
    true
}

/// Returns how a thread goes on that stands at the entry or the exit of a followed call; `None`
/// if it is in no such call.
pub(super) fn on_call(tasks: &TaskTable, tracee: &Tracee) -> Option<Resume> {
    let task = tracee.thread();
    tasks.find(task, |task| task.restart)?;
    let ends = match tracee.system_call() {
        Ok(SystemCall::Exit { value, .. }) => {
            value != -i64::from(libc::EINTR) && value != -ERESTARTNOHAND
        }
        Ok(_) => false,
        Err(_) => true,
    };
    if ends {
        forget(tasks, task);
        return Some(Resume::Continue);
    }
    Some(Resume::ToSystemCall(0))
}

/// Forgets the call of a thread that has left it.
fn forget(tasks: &TaskTable, task: u32) {
    tasks.find(task, |task| task.restart.take());
}

/// Returns whether a thread stands at the entry of a call.
fn is_entry(tracee: &Tracee, event: Event) -> bool {
    event == Event::SystemCall && !tracee.has_returned()
}

/// Returns the call with a time limit that a thread was interrupted in.
fn limit(task: u32, registers: &Registers) -> Option<LimitedCall> {
    restart::limit(registers, |at| Memory::of(task).ok()?.word(at).ok())
}

/// Returns an address for the rest of a thread's limit that no other thread has. Only threads of
/// one program must differ; that others do, too, does no harm.
fn place(tasks: &TaskTable, task: u32) -> Option<u64> {
    let mappings = maps::of(task).ok()?;
    let memory = Memory::of(task).ok()?;
    let slack = slack::all(&memory, &mappings).next()?;
    memory.write(slack.start, &slack::MARK).ok()?;
    // The second half of the slack has other data of refit's.
    let end = slack.start + slack::SIZE / 2;
    let places = (slack.start + slack::MARK.len() as u64..end).step_by(SIZE);
    { places }.find(|&place| {
        !tasks.any(|task| task.restart.is_some_and(|restart| restart.place == Some(place)))
    })
}

/// Bytes of a `syscall` instruction.
const SYSCALL: u64 = 2;
/// Bytes of a `struct timespec`.
const SIZE: usize = 16;

fn write(task: u32, place: u64, remains: Duration) -> Option<()> {
    let [seconds, nanoseconds] = LimitedCall::timespec(remains).map(u64::to_ne_bytes);
    Memory::of(task).ok()?.write(place, &[seconds, nanoseconds].concat()).ok()
}
