//! What is left of a call when its thread is stopped by refit.
//!
//! A thread that waits for room in a pipe or socket, or for all that it wants to receive, and is
//! stopped after it has done a part, finds the call ended with a short count, as after a signal
//! (pipe(7)). A thread that nobody has stopped would have gone on; so it does:
//!
//! ```text
//!   stops ──► short ──► goes on ──► under way: a call for what is left ──► it returns ──► behind the first call, with the sum
//!               ▲                        │
//!               └── what is done ◄───────┴── stops once more, or is given a signal
//! ```
//!
//! What is left the table of all calls says ([`refit_sys::restart::left`]); of memory in several
//! pieces, the rest of one piece comes first.
//!
//! Whenever the thread stands where somebody else looks at it, its registers are those that the
//! kernel could have left: behind the call that the program has made, with what is done so far.
//! Only between two stops they are others. So whoever takes the registers, gives it a signal, or
//! ends it needs to know nothing of this; and a short count that the thread is left with is one
//! that the kernel would give, too, since there is a signal.
//!
//! A rest that cannot be had (nobody reads any more, the memory is not there) ends the call with
//! what was done, as it would have.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::sync::Mutex;

use refit_sys::foreign::Memory;
use refit_sys::restart::{self, Call, Left};
use refit_sys::shadow_stub;
use refit_sys::trace::{Event, Registers, Tracee};

use crate::resume::Resume;
use crate::signals;
use crate::supervisor::lock;
use crate::syscall::is_interrupted;

/// Threads that have done a part.
#[derive(Debug, Default)]
pub(crate) struct ShortWrites {
    of: Mutex<BTreeMap<u32, Rest>>,
}

/// How far one is.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// It stands behind the call, which has this number.
    Short(u64),
    /// It makes a call at this address for what is left of its own, of which so much is done.
    UnderWay { own: Call, at: u64, done: u64 },
}

impl ShortWrites {
    /// Before anybody else looks at an event of a thread: its registers are made what they are to be.
    pub(super) fn look(&self, held: &Tracee, event: Event) {
        let task = held.thread();
        if matches!(event, Event::Seccomp { .. }) {
            // In the midst of a call.
            return;
        }
        let returned = match event {
            Event::Interrupted => true,
            Event::SystemCall => held.has_returned(),
            _ => false,
        };
        let before = lock(&self.of).get(&task).copied();
        let goes_on = match before {
            Some(Rest::UnderWay { own, at, done }) => {
                // Before the call there is nothing to be seen yet; what the kernel makes again ends later.
                if event == Event::SystemCall && !(returned && ended(held)) {
                    return;
                }
                self.forget(task);
                add(held, own, at, done).unwrap_or(false)
            }
            Some(Rest::Short(_)) => {
                self.forget(task);
                true
            }
            None => true,
        };
        if returned
            && goes_on
            && let Some(number) = short(held)
        {
            lock(&self.of).insert(task, Rest::Short(number));
        }
    }

    /// Whether a thread stands behind a part of what it does.
    pub(super) fn is_short(&self, task: u32) -> bool {
        matches!(lock(&self.of).get(&task), Some(Rest::Short(_)))
    }

    /// Its registers are others now, or it is no more.
    pub(super) fn forget(&self, task: u32) {
        lock(&self.of).remove(&task);
    }

    /// A thread goes on in this way: it does what is left, unless it is given a signal. How it goes
    /// on then.
    pub(super) fn goes_on(&self, held: &Tracee, after: Resume) -> Resume {
        let task = held.thread();
        let mut of = lock(&self.of);
        let Some(rest) = of.get(&task).copied() else { return after };
        match (after, rest) {
            (Resume::GoOn | Resume::ToSystemCall(0), Rest::Short(number)) => {
                // Killed meanwhile, or its memory cannot be read any more, if not.
                let Ok(Some(under_way)) = take_up(held, number) else {
                    of.remove(&task);
                    return after;
                };
                of.insert(task, under_way);
                Resume::ToSystemCall(0)
            }
            (Resume::GoOn, Rest::UnderWay { .. }) => Resume::ToSystemCall(0),
            (Resume::Once(_) | Resume::ToSystemCall(1..), Rest::Short(_)) => {
                of.remove(&task);
                after
            }
            _ => after,
        }
    }
}

/// Whether a call has ended, at its exit.
fn ended(held: &Tracee) -> bool {
    held.registers().is_ok_and(|registers| !is_interrupted(registers.rax))
}

/// The number of the call that a thread stands behind, if that has done a part only since the
/// thread was stopped.
fn short(held: &Tracee) -> Option<u64> {
    let registers = held.registers().ok()?;
    let part = left(held.thread(), &registers).is_some();
    let short = part && waits(held.thread(), &registers) && !signals::are_pending(held);
    short.then_some(registers.orig_rax)
}

/// What is left of the call that a thread stands behind.
fn left(task: u32, registers: &Registers) -> Option<Left> {
    let memory = std::cell::OnceCell::new();
    restart::left(registers, |at| {
        let memory = memory.get_or_init(|| Memory::of(task));
        memory.as_ref().ok()?.word(at).ok()
    })
}

/// Whether a call waits until all is done.
fn waits(task: u32, registers: &Registers) -> bool {
    let number = registers.orig_rax.cast_signed();
    let flags = match number {
        // They wait for no descriptor's sake.
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
    // As the kernel takes it.
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

/// Has a thread make a call for what is left of its own, which has this number. `None`: what is
/// left cannot be told any more.
fn take_up(held: &Tracee, number: u64) -> std::io::Result<Option<Rest>> {
    let mut registers = held.registers()?;
    registers.orig_rax = number;
    let Some(left) = left(held.thread(), &registers) else { return Ok(None) };
    let own = Call { number, arguments: restart::arguments(&registers) };
    shadow_stub::step_back(&mut registers, left.next.number);
    restart::set_arguments(&mut registers, left.next.arguments);
    held.set_registers(&registers)?;
    Ok(Some(Rest::UnderWay { own, at: registers.rip, done: left.done }))
}

/// Puts a thread behind its own call again, with all that is done; whether any of the rest is.
fn add(held: &Tracee, own: Call, at: u64, done: u64) -> std::io::Result<bool> {
    let mut registers = held.registers()?;
    let more = if registers.rip == at {
        // It has not begun.
        shadow_stub::step_over(&mut registers, 0);
        None
    } else {
        Some(registers.rax.cast_signed())
    };
    registers.orig_rax = own.number;
    registers.rax = done + more.filter(|more| *more > 0).unwrap_or(0).cast_unsigned();
    restart::set_arguments(&mut registers, own.arguments);
    held.set_registers(&registers)?;
    Ok(more.is_none_or(|more| more > 0 || is_interrupted(more.cast_unsigned())))
}
