//! The rest of a call that refit's stop of its thread has cut short.
//!
//! A thread that waits for room in a pipe or socket, or for all that it wants to receive, and is
//! stopped after a part is done, finds the call ended with a short count, as after a signal
//! (pipe(7)). Without the stop the thread would have gone on, so it does:
//!
//! ```text
//!   stopped ──► short ──► resumed ──► under way: a call for the rest ──► it returns ─┐
//!                 ▲                        │             behind the first call, with the sum
//!                 └── the part done ◄──────┴── stopped once more, or a signal is delivered
//! ```
//!
//! The table of all calls says what the rest of a call is ([`refit_sys::restart::left`]). Of memory
//! in several pieces, the rest of one piece comes first.
//!
//! Whenever a stopped thread can be looked at, its registers are such as the kernel could have
//! left: behind the call that the program has made, with the count so far. They differ only between
//! two stops. So code that takes the registers, delivers a signal, or ends the thread needs to know
//! nothing of this; and a short count that the thread is left with is one that the kernel would
//! return, too, since there is a signal.
//!
//! If the rest fails (nobody reads any more, the memory is not mapped), the call ends with the
//! count so far, as it would have without the stop.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use refit_sys::foreign::Memory;
use refit_sys::restart::{self, Call, Left};
use refit_sys::shadow_stub;
use refit_sys::trace::{Event, Registers, Tracee};

use crate::resume::Resume;
use crate::signals;
use crate::supervisor::records::Rest;
use crate::supervisor::tasks::TaskTable;
use crate::syscall::is_interrupted;

/// Makes the registers of a thread such as the kernel could have left them, before anybody else
/// handles the event.
pub(super) fn on_event(tasks: &TaskTable, tracee: &Tracee, event: Event) {
    let task = tracee.thread();
    if matches!(event, Event::Seccomp { .. }) {
        // Inside a call.
        return;
    }
    let returned = match event {
        Event::Interrupted => true,
        Event::SystemCall => tracee.has_returned(),
        _ => false,
    };
    let goes_on = match tasks.find(task, |task| task.short_write) {
        Some(Rest::UnderWay { own, at, done }) => {
            // At the entry nothing has changed yet; a call that the kernel restarts ends later.
            if event == Event::SystemCall && !(returned && ended(tracee)) {
                return;
            }
            forget(tasks, task);
            add(tracee, own, at, done).unwrap_or(false)
        }
        Some(Rest::Short(_)) => {
            forget(tasks, task);
            true
        }
        None => true,
    };
    if returned
        && goes_on
        && let Some(number) = short(tracee)
    {
        tasks.entry(task, |task| task.short_write = Some(Rest::Short(number)));
    }
}

/// Returns whether a thread stands behind a call that was cut short.
pub(super) fn is_short(tasks: &TaskTable, task: u32) -> bool {
    tasks.is(task, |task| matches!(task.short_write, Some(Rest::Short(_))))
}

/// Forgets the rest of a thread's call: the thread has other registers.
pub(super) fn forget(tasks: &TaskTable, task: u32) {
    tasks.find(task, |task| task.short_write.take());
}

/// Returns how a thread goes on that would go on in this way: it does the rest of its call first,
/// unless a signal is delivered.
pub(super) fn adjust(tasks: &TaskTable, tracee: &Tracee, resume: Resume) -> Resume {
    let task = tracee.thread();
    let Some(rest) = tasks.find(task, |task| task.short_write) else { return resume };
    match (resume, rest) {
        (Resume::Continue | Resume::ToSystemCall(0), Rest::Short(number)) => {
            // This fails only if the thread was killed meanwhile, or its memory cannot be read any
            // more.
            let Ok(Some(under_way)) = take_up(tracee, number) else {
                forget(tasks, task);
                return resume;
            };
            tasks.entry(task, |task| task.short_write = Some(under_way));
            Resume::ToSystemCall(0)
        }
        (Resume::Continue, Rest::UnderWay { .. }) => Resume::ToSystemCall(0),
        (Resume::Once(_) | Resume::ToSystemCall(1..), Rest::Short(_)) => {
            forget(tasks, task);
            resume
        }
        _ => resume,
    }
}

/// Returns whether a call has ended, at its exit.
fn ended(tracee: &Tracee) -> bool {
    tracee.registers().is_ok_and(|registers| !is_interrupted(registers.rax))
}

/// Returns the number of the call that a thread stands behind, if the stop has cut the call short.
fn short(tracee: &Tracee) -> Option<u64> {
    let registers = tracee.registers().ok()?;
    let part = left(tracee.thread(), &registers).is_some();
    let short = part && is_blocking(tracee.thread(), &registers) && !signals::are_pending(tracee);
    short.then_some(registers.orig_rax)
}

/// Returns the rest of the call that a thread stands behind.
fn left(task: u32, registers: &Registers) -> Option<Left> {
    let memory = std::cell::OnceCell::new();
    restart::left(registers, |at| {
        let memory = memory.get_or_init(|| Memory::of(task));
        memory.as_ref().ok()?.word(at).ok()
    })
}

/// Returns whether a call waits until all is done.
fn is_blocking(task: u32, registers: &Registers) -> bool {
    let number = registers.orig_rax.cast_signed();
    let flags = match number {
        // They wait, whatever their descriptor is.
        libc::SYS_getrandom | libc::SYS_io_uring_enter => return true,
        libc::SYS_sendto | libc::SYS_recvfrom | libc::SYS_sendmmsg | libc::SYS_recvmmsg => {
            registers.r10
        }
        libc::SYS_sendmsg | libc::SYS_recvmsg => registers.rdx,
        _ => 0,
    };
    if flags & libc::MSG_DONTWAIT as u64 != 0 {
        return false;
    }
    // Truncated as the kernel does.
    let descriptor = registers.rdi as u32;
    let kind = fs::metadata(format!("/proc/{task}/fd/{descriptor}")).map(|file| file.file_type());
    let Ok(about) = fs::read_to_string(format!("/proc/{task}/fdinfo/{descriptor}")) else {
        return false;
    };
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
        && flags.is_some_and(|flags| flags & libc::O_NONBLOCK == 0)
}

/// Has a thread make a call for the rest of its own, which has this number. Returns `None` if the
/// rest cannot be determined any more.
fn take_up(tracee: &Tracee, number: u64) -> std::io::Result<Option<Rest>> {
    let mut registers = tracee.registers()?;
    registers.orig_rax = number;
    let Some(left) = left(tracee.thread(), &registers) else { return Ok(None) };
    let own = Call { number, arguments: restart::arguments(&registers) };
    shadow_stub::step_back(&mut registers, left.next.number);
    restart::set_arguments(&mut registers, left.next.arguments);
    tracee.set_registers(&registers)?;
    Ok(Some(Rest::UnderWay { own, at: registers.rip, done: left.done }))
}

/// Puts a thread behind its own call again, with the sum as the result. Returns whether any of the
/// rest was done.
fn add(tracee: &Tracee, own: Call, at: u64, done: u64) -> std::io::Result<bool> {
    let mut registers = tracee.registers()?;
    let more = if registers.rip == at {
        // The call for the rest has not begun.
        shadow_stub::step_over(&mut registers, 0);
        None
    } else {
        Some(registers.rax.cast_signed())
    };
    registers.orig_rax = own.number;
    registers.rax = done + more.filter(|more| *more > 0).unwrap_or(0).cast_unsigned();
    restart::set_arguments(&mut registers, own.arguments);
    tracee.set_registers(&registers)?;
    Ok(more.is_none_or(|more| more > 0 || is_interrupted(more.cast_unsigned())))
}
