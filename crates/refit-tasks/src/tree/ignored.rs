//! Signals that a program ignores do not end its waits.
//!
//! The kernel throws an ignored signal away as it is sent, but not where the receiver is traced: the tracer may want to know. So it
//! interrupts calls, and those that are never made again by themselves would fail with `EINTR` (signal(7)). Where nobody has a handler
//! for it, such a call is made again: the thread is given back the word that the kernel itself has for that (`ERESTARTNOHAND`), by which it
//! decides when all signals have been seen to; a handler that runs meanwhile ends the call with `EINTR`, as ever.
//!
//! The time limit of a call that is made again begins anew. When it began first nobody knows; but a call that is interrupted again is
//! followed to its end, and ends as at its limit once that time has passed since the first interruption. So a wait ends never too soon, and signals
//! that come again and again do not keep it for ever. That of a socket (`SO_RCVTIMEO`) is not known, and begins anew each time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use refit_sys::foreign::Memory;
use refit_sys::park::interrupted_by_stop;
use refit_sys::trace::{Held, Registers, SystemCall};

use super::signals::ignored;
use super::{After, lock};

/// `ERESTARTNOHAND` of `linux/errno.h`.
const AGAIN: i64 = -514;

/// Threads whose calls are made again.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    /// By thread.
    waits: Mutex<BTreeMap<u32, Wait>>,
}

/// A call that is made again.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// When it is to end.
    until: Instant,
    /// What it returns then.
    late: i64,
}

impl Ignored {
    /// A thread is about to be given a signal: a call that is not to end because of it is made again. Whether that is followed to its end, which the
    /// caller may not want.
    pub(super) fn is_given(&self, held: &Held, signal: i32, follow: bool) -> bool {
        let task = held.thread();
        let Ok(mut registers) = held.registers() else { return false };
        let number = registers.orig_rax;
        if !interrupted_by_stop(&registers, number) || !ignored(task, signal) {
            self.forget(task);
            return false;
        }
        let known = lock(&self.waits).get(&task).copied();
        let wait = known.or_else(|| {
            let (limit, late) = limit(task, &registers)?;
            Some(Wait { until: Instant::now().checked_add(limit)?, late })
        });
        let late = wait.filter(|wait| Instant::now() >= wait.until);
        registers.rax = late.map_or(AGAIN, |wait| wait.late).cast_unsigned();
        if held.set_registers(&registers).is_err() {
            // Killed meanwhile.
            return false;
        }
        match wait.filter(|_| late.is_none() && follow) {
            Some(wait) => {
                lock(&self.waits).insert(task, wait);
                true
            }
            None => {
                self.forget(task);
                false
            }
        }
    }

    /// A thread stands at the beginning or the end of a call; how it goes on, if that is one that is made again.
    pub(super) fn take(&self, held: &Held) -> Option<After> {
        let task = held.thread();
        let mut waits = lock(&self.waits);
        waits.get(&task)?;
        let ends = match held.system_call() {
            Ok(SystemCall::Exit { value, .. }) => value != -i64::from(libc::EINTR),
            Ok(_) => false,
            Err(_) => true,
        };
        if ends {
            waits.remove(&task);
            return Some(After::GoOn);
        }
        Some(After::ToSystemCall(0))
    }

    /// A task is no more, or in no such call.
    pub(super) fn forget(&self, task: u32) {
        lock(&self.waits).remove(&task);
    }
}

/// The time limit of a call, and what it returns when that is over; `None`: it has none, or one that is not told.
fn limit(task: u32, registers: &Registers) -> Option<(Duration, i64)> {
    let again = -i64::from(libc::EAGAIN);
    match registers.orig_rax.cast_signed() {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
            let milliseconds = u64::try_from((registers.r10 as u32).cast_signed()).ok()?;
            Some((Duration::from_millis(milliseconds), 0))
        }
        libc::SYS_epoll_pwait2 => Some((time(task, registers.r10)?, 0)),
        libc::SYS_rt_sigtimedwait => Some((time(task, registers.rdx)?, again)),
        libc::SYS_semtimedop => Some((time(task, registers.r10)?, again)),
        libc::SYS_io_getevents => Some((time(task, registers.r8)?, 0)),
        _ => None,
    }
}

/// The `struct timespec` at an address of a thread's.
fn time(task: u32, at: u64) -> Option<Duration> {
    let memory = Memory::of(task).ok()?;
    let word = |at: u64| memory.word(at).ok();
    let (seconds, nanoseconds) = (word(at)?, word(at.checked_add(8)?)?);
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanoseconds))
}
