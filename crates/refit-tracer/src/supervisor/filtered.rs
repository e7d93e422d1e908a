//! What filters of system calls tell the thread that follows (`SECCOMP_RET_TRACE`).
//!
//! A filter of the program's own may say so, too, and then nobody traces, as far as the program knows: the call is not made, and fails with
//! `ENOSYS` (seccomp(2)). Only what a filter of refit's says of that very call, by this machine's own convention, is told to refit. The
//! kernel takes the word of the filter that was installed last, so a call of which both speak is the program's, unless its message is the same.

use std::io;

use refit_sys::foreign::{self, Memory};
use refit_sys::launch::{PROCESSORS, REQUEST, REQUESTS};
use refit_sys::seccomp::managed::{KILLS, LIMITS, MAKES};
use refit_sys::trace::{Event, SystemCall, Tracee};

use crate::resume::Resume;
use crate::supervisor::Supervisor;
use crate::supervisor::sandbox::Sandbox;

const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;

impl Supervisor {
    /// What an event means that a filter of the program's own has caused, or that is the same for all programs; `None`: it is told on.
    pub(super) fn take_filtered(&self, held: &Tracee, event: Event) -> Option<Resume> {
        let Event::Seccomp { message } = event else { return None };
        // Killed meanwhile, if not: whatever is done is not seen.
        let (call, own_convention) = held.system_call_by().ok()?;
        let SystemCall::Seccomp { number, arguments, .. } = call else { return None };
        let number = number.cast_signed();
        if message == KILLS && self.sandbox.is_strict(held.thread()) {
            // Killed meanwhile, if not.
            let _ = Sandbox::kills(held);
            return Some(self.hook.resume(held.thread()));
        }
        if !own_convention || !self.tells(message, number, &arguments) {
            return self.fail(held, libc::ENOSYS);
        }
        if [libc::SYS_clone, libc::SYS_clone3].contains(&number) {
            // What cannot be read the kernel refuses, too.
            let _ = trace_whatever_is_made(held, number);
        }
        if message == LIMITS {
            self.sandbox.begins(held, number, &arguments);
            let waits = self.hook.on_event(held, event);
            let entering = self.sandbox.is_entering(held.thread());
            let plainly = || self.hook.resume(held.thread());
            let on = if entering { Resume::ToSystemCall(0) } else { plainly() };
            return Some(waits.unwrap_or(on));
        }
        (message == MAKES).then(|| self.hook.resume(held.thread()))
    }

    /// Whether a filter of refit's says this of a call.
    fn tells(&self, message: u16, number: i64, arguments: &[u64; 6]) -> bool {
        match message {
            REQUESTS => {
                let asks = u64::from(arguments[0] as u32) == REQUEST;
                self.movable && number == libc::SYS_prctl && asks
            }
            PROCESSORS => self.shown.is_some() && number == libc::SYS_sched_getaffinity,
            MAKES if number == libc::SYS_clone => arguments[0] & UNTRACED != 0,
            MAKES => number == libc::SYS_clone3,
            LIMITS if number == libc::SYS_seccomp => true,
            LIMITS => {
                let sets = u64::from(arguments[0] as u32) == libc::PR_SET_SECCOMP as u64;
                number == libc::SYS_prctl && sets
            }
            _ => self.movable && self.hook.reports(message, number, arguments),
        }
    }

    /// A thread stands before a call, which is not made, and fails with this error.
    fn fail(&self, held: &Tracee, errno: i32) -> Option<Resume> {
        let mut registers = held.registers().ok()?;
        registers.orig_rax = u64::MAX;
        registers.rax = i64::from(-errno).cast_unsigned();
        held.set_registers(&registers).ok()?;
        Some(self.hook.resume(held.thread()))
    }
}

/// Has whatever task a thread is about to make be traced as all are, whether it asks for that or not (`CLONE_UNTRACED`).
fn trace_whatever_is_made(held: &Tracee, number: i64) -> io::Result<()> {
    let mut registers = held.registers()?;
    if number == libc::SYS_clone {
        if registers.rdi & UNTRACED != 0 {
            registers.rdi &= !UNTRACED;
            held.set_registers(&registers)?;
        }
        return Ok(());
    }
    // `struct clone_args` begins with its flags. Their page may be out, or elsewhere.
    let memory = Memory::of(held.thread())?;
    let flags = memory.word(registers.rdi).or_else(|_| {
        foreign::bring(held.thread(), registers.rdi)?;
        memory.word(registers.rdi).map_err(io::Error::from)
    })?;
    if flags & UNTRACED != 0 {
        memory.write(registers.rdi, &(flags & !UNTRACED).to_ne_bytes())?;
    }
    Ok(())
}
