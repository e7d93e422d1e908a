//! What is left of a write when its thread is stopped by refit.
//!
//! Who waits for room in a pipe or socket, and is stopped after it has written a part, finds the call ended with a short count, as after a
//! signal (pipe(7)). A thread that nobody has stopped would have written on; so it does:
//!
//! ```text
//!   stops ──► short ──► goes on ──► under way: the same call, of what is left ──► it returns ──► behind the first call, with the sum
//!               ▲                        │
//!               └── what is written ◄────┴── stops once more, or is given a signal
//! ```
//!
//! Whenever the thread stands where somebody else looks at it, its registers are those that the kernel could have left: behind the call that
//! the program has made, with what is written so far. Only between two stops they are others. So whoever takes the registers, gives it a
//! signal, or ends it needs to know nothing of this; and a short count that the thread is left with is one that the kernel would give,
//! too, since there is a signal.
//!
//! A rest that cannot be written (nobody reads any more, the memory is not there) ends the call with what was written, as it would have.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::sync::Mutex;

use refit_sys::park;
use refit_sys::trace::{Event, Held, Registers, SystemCall};

use super::moves::interrupted;
use super::signals;
use super::{After, lock};

/// Calls that write from the address in the second argument as many bytes as the third says, and can be made again of what is left.
const WRITES: [i64; 2] = [libc::SYS_write, libc::SYS_sendto];

/// Threads that have written a part.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    of: Mutex<BTreeMap<u32, Rest>>,
}

/// How far one is.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// It stands behind the call, which has this number.
    Short(u64),
    /// It makes the call again, which is at this address, of what is left; so much is written.
    UnderWay { number: u64, at: u64, written: u64 },
}

impl Rests {
    /// Before anybody else looks at an event of a thread: its registers are made what they are to be.
    pub(super) fn look(&self, held: &Held, event: Event) {
        let task = held.thread();
        if matches!(event, Event::Seccomp { .. }) {
            // In the midst of a call.
            return;
        }
        let returned = match event {
            Event::Interrupted => true,
            Event::SystemCall => {
                held.system_call().is_ok_and(|call| matches!(call, SystemCall::Exit { .. }))
            }
            _ => false,
        };
        let before = lock(&self.of).get(&task).copied();
        let goes_on = match before {
            Some(Rest::UnderWay { number, at, written }) => {
                // Before the call there is nothing to be seen yet; what the kernel makes again ends later.
                if event == Event::SystemCall && !(returned && ended(held)) {
                    return;
                }
                self.forget(task);
                add(held, number, at, written).unwrap_or(false)
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

    /// Whether a thread stands behind a part of what it writes.
    pub(crate) fn is_short(&self, task: u32) -> bool {
        matches!(lock(&self.of).get(&task), Some(Rest::Short(_)))
    }

    /// Its registers are others now, or it is no more.
    pub(crate) fn forget(&self, task: u32) {
        lock(&self.of).remove(&task);
    }

    /// A thread goes on in this way: it writes what is left, unless it is given a signal. How it goes on then.
    pub(super) fn goes_on(&self, held: &Held, after: After) -> After {
        let task = held.thread();
        let mut of = lock(&self.of);
        let Some(rest) = of.get(&task).copied() else { return after };
        match (after, rest) {
            (After::GoOn | After::ToSystemCall(0), Rest::Short(number)) => {
                // Killed meanwhile, if not.
                let Ok(under_way) = take_up(held, number) else { return after };
                of.insert(task, under_way);
                After::ToSystemCall(0)
            }
            (After::GoOn, Rest::UnderWay { .. }) => After::ToSystemCall(0),
            (After::Once(_) | After::ToSystemCall(1..), Rest::Short(_)) => {
                of.remove(&task);
                after
            }
            _ => after,
        }
    }
}

/// Whether a call has ended, at its exit.
fn ended(held: &Held) -> bool {
    held.registers().is_ok_and(|registers| !interrupted(registers.rax))
}

/// The number of the call that a thread stands behind, if that has written a part only since the thread was stopped.
fn short(held: &Held) -> Option<u64> {
    let registers = held.registers().ok()?;
    let number = registers.orig_rax;
    let part = 0 < registers.rax.cast_signed() && registers.rax < registers.rdx;
    let writes = part && WRITES.contains(&number.cast_signed());
    (writes && waits(held.thread(), &registers) && !signals::are_pending(held)).then_some(number)
}

/// Whether a write waits until all is written.
fn waits(task: u32, registers: &Registers) -> bool {
    let sends = registers.orig_rax.cast_signed() == libc::SYS_sendto;
    if sends && registers.r10 & libc::MSG_DONTWAIT as u64 != 0 {
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

/// Has a thread make its call again, of what is left.
fn take_up(held: &Held, number: u64) -> std::io::Result<Rest> {
    let mut registers = held.registers()?;
    let written = registers.rax;
    park::step_back(&mut registers, number);
    registers.rsi = registers.rsi.wrapping_add(written);
    registers.rdx = registers.rdx.wrapping_sub(written);
    held.set_registers(&registers)?;
    Ok(Rest::UnderWay { number, at: registers.rip, written })
}

/// Puts a thread behind its call again, with all that is written; whether any of the rest is.
fn add(held: &Held, number: u64, at: u64, written: u64) -> std::io::Result<bool> {
    let mut registers = held.registers()?;
    let more = if registers.rip == at {
        // It has not begun.
        park::step_over(&mut registers, 0);
        None
    } else {
        Some(registers.rax.cast_signed())
    };
    registers.orig_rax = number;
    registers.rax = written + more.filter(|more| *more > 0).unwrap_or(0).cast_unsigned();
    registers.rsi = registers.rsi.wrapping_sub(written);
    registers.rdx = registers.rdx.wrapping_add(written);
    held.set_registers(&registers)?;
    Ok(more.is_none_or(|more| more > 0 || interrupted(more.cast_unsigned())))
}
