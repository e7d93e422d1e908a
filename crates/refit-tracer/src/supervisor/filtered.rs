//! The events of seccomp filters (`SECCOMP_RET_TRACE`).
//!
//! A filter of the program's own may return this value, too. To the program it is not traced, so
//! its call must fail with `ENOSYS` without being made (seccomp(2)). Refit acts only on what its
//! own filters report of exactly this call, made by this machine's own convention. The kernel
//! reports the value of the filter that was installed last, so a call that both filters report
//! counts as the program's, unless the message is the same.

use std::io;

use refit_sys::foreign::{self, Memory};
use refit_sys::launch::{PROCESSORS, REQUEST, REQUESTS};
use refit_sys::seccomp::managed::{KILLS, LIMITS, MAKES};
use refit_sys::trace::{Event, SystemCall, Tracee};

use crate::resume::Resume;
use crate::supervisor::Supervisor;
use crate::supervisor::sandbox;

const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;

impl Supervisor {
    /// Handles an event of a filter that means the same for all programs, or comes from a filter
    /// of the program's own. Returns `None` for other events.
    pub(super) fn on_filtered(&self, tracee: &Tracee, event: Event) -> Option<Resume> {
        let Event::Seccomp { message } = event else { return None };
        // This fails only if the thread was killed meanwhile, and then nothing matters any more.
        let (call, own_convention) = tracee.system_call_by().ok()?;
        let SystemCall::Seccomp { number, arguments, .. } = call else { return None };
        let number = number.cast_signed();
        if message == KILLS && self.is_strict(tracee.thread()) {
            // This fails only if the thread was killed meanwhile.
            let _ = sandbox::kill_strict(tracee);
            return Some(self.hook.resume(tracee.thread()));
        }
        if !own_convention || !self.is_reported_by_refit(message, number, &arguments) {
            return self.fail(tracee, libc::ENOSYS);
        }
        if [libc::SYS_clone, libc::SYS_clone3].contains(&number) {
            // The kernel refuses arguments that cannot be read, too.
            let _ = trace_new_task(tracee, number);
        }
        if message == LIMITS {
            self.on_limit(tracee, number, &arguments);
            let awaited = self.hook.on_event(tracee, event);
            let entering = self.is_entering_strict(tracee.thread());
            let resume = || self.hook.resume(tracee.thread());
            let resume = if entering { Resume::ToSystemCall(0) } else { resume() };
            return Some(awaited.unwrap_or(resume));
        }
        (message == MAKES).then(|| self.hook.resume(tracee.thread()))
    }

    /// Returns whether a filter of refit's reports this call with this message.
    fn is_reported_by_refit(&self, message: u16, number: i64, arguments: &[u64; 6]) -> bool {
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

    /// Fails the call that a thread is about to make.
    fn fail(&self, tracee: &Tracee, errno: i32) -> Option<Resume> {
        let mut registers = tracee.registers().ok()?;
        registers.orig_rax = u64::MAX;
        registers.rax = i64::from(-errno).cast_unsigned();
        tracee.set_registers(&registers).ok()?;
        Some(self.hook.resume(tracee.thread()))
    }
}

/// Has the task that a thread is about to make be traced, even if the call asks for the opposite
/// (`CLONE_UNTRACED`).
fn trace_new_task(tracee: &Tracee, number: i64) -> io::Result<()> {
    let mut registers = tracee.registers()?;
    if number == libc::SYS_clone {
        if registers.rdi & UNTRACED != 0 {
            registers.rdi &= !UNTRACED;
            tracee.set_registers(&registers)?;
        }
        return Ok(());
    }
    // `struct clone_args` begins with its flags. Their page may be evicted, or at another node.
    let memory = Memory::of(tracee.thread())?;
    let flags = memory.word(registers.rdi).or_else(|_| {
        foreign::bring(tracee.thread(), registers.rdi)?;
        memory.word(registers.rdi).map_err(io::Error::from)
    })?;
    if flags & UNTRACED != 0 {
        memory.write(registers.rdi, &(flags & !UNTRACED).to_ne_bytes())?;
    }
    Ok(())
}
