//! Programs that limit their own calls (seccomp).
//!
//! A filter of the program's own would judge the calls that refit makes in its threads, too, and
//! those of a shadow that waits for calls: it could kill the program for them. So a process that
//! limits its calls stays at its origin from then on, and so do the processes that it makes. If
//! threads of it are elsewhere, all return before the call is made that installs the filter
//! ([`TracerHook::on_event`](crate::TracerHook::on_event)).
//!
//! *Strict mode* (`SECCOMP_MODE_STRICT`): the kernel refuses it to a process that has a filter
//! already, as programs have from refit. So the thread gets a filter instead that permits the same
//! calls and reports all others; a thread that makes one of those is killed, as in strict mode.
//!
//! ```text
//!   before seccomp(STRICT) ──► replaced by seccomp(FILTER, rules behind the vDSO's code)
//!                                  └──► its own registers again
//! ```

use std::io;

use refit_sys::foreign::Memory;
use refit_sys::seccomp::managed::KILLS;
use refit_sys::seccomp::{Action, Filter, Install};
use refit_sys::trace::{Event, Registers, Tracee};
use refit_sys::{maps, slack};

use crate::process;
use crate::supervisor::Supervisor;
use crate::supervisor::processes::ProcessState;
use crate::supervisor::records::StrictMode;

/// `linux/seccomp.h`.
const SET_MODE_STRICT: u64 = 0;
const MODE_STRICT: u64 = 1;

impl Supervisor {
    /// Handles a thread that is about to limit its calls.
    pub(super) fn on_limit(&self, tracee: &Tracee, number: i64, arguments: &[u64; 6]) {
        let task = tracee.thread();
        let process = process::process_of(task).unwrap_or(task);
        let limited = |state: &mut ProcessState| std::mem::replace(&mut state.limits_itself, true);
        let first = !self.processes.entry(process, limited);
        // If it has filters of its own already the kernel refuses strict mode, as it would without
        // ours.
        if first && is_strict(number, arguments) {
            // If this fails, the kernel refuses the call as it stands.
            let _ = self.enter_strict(tracee);
        }
    }

    fn enter_strict(&self, tracee: &Tracee) -> io::Result<()> {
        let task = tracee.thread();
        let own = tracee.registers()?;
        let memory = Memory::of(task)?;
        let mappings = maps::of(task)?;
        let slack = slack::all(&memory, &mappings).next();
        let slack = slack.ok_or(io::ErrorKind::OutOfMemory)?;
        memory.write(slack.start, &slack::MARK)?;
        let place = slack.start + slack::SIZE / 2;
        memory.write(place, &strict()?.image(place))?;
        let (number, [operation, flags, at, ..]) = Install::empty().call(place);
        let asks = Registers { rdi: operation, rsi: flags, rdx: at, ..own };
        tracee.set_registers(&Registers { orig_rax: number.cast_unsigned(), ..asks })?;
        self.tasks.entry(task, |task| task.strict_mode = StrictMode::Entering(Box::new(own)));
        Ok(())
    }

    /// Restores the registers of a thread behind the replaced call, before anybody else handles the
    /// event.
    pub(super) fn on_entered_strict(&self, tracee: &Tracee, event: Event) {
        let task = tracee.thread();
        if event != Event::SystemCall || !self.is_entering_strict(task) || !tracee.has_returned() {
            return;
        }
        let entered = self.tasks.find(task, |task| {
            match std::mem::replace(&mut task.strict_mode, StrictMode::Outside) {
                StrictMode::Entering(own) => Some(*own),
                StrictMode::Outside | StrictMode::Inside => None,
            }
        });
        let Some(own) = entered else { return };
        // This fails only if the thread was killed meanwhile.
        let Ok(now) = tracee.registers() else { return };
        if now.rax == 0 {
            self.tasks.entry(task, |task| task.strict_mode = StrictMode::Inside);
        }
        let _ = tracee.set_registers(&Registers { rax: now.rax, ..own });
    }

    /// Returns whether the end of the call that a thread stands before must be reported.
    pub(super) fn is_entering_strict(&self, task: u32) -> bool {
        self.tasks.is(task, |task| matches!(task.strict_mode, StrictMode::Entering(_)))
    }

    /// Returns whether a thread is in strict mode, so that each report of refit's filter ends it.
    pub(super) fn is_strict(&self, task: u32) -> bool {
        self.tasks.is(task, |task| matches!(task.strict_mode, StrictMode::Inside))
    }
}

/// Kills a thread in strict mode that has made a call which is not permitted, and its process
/// with it if it is the only thread.
pub(super) fn kill_strict(tracee: &Tracee) -> io::Result<()> {
    let task = tracee.thread();
    let process = process::process_of(task).unwrap_or(task);
    if refit_sys::process::threads(process).len() <= 1 {
        return process::kill(process);
    }
    let registers = tracee.registers()?;
    let exit = libc::SYS_exit.cast_unsigned();
    tracee.set_registers(&Registers { orig_rax: exit, rdi: libc::SIGKILL as u64, ..registers })
}

/// Returns whether a call asks for strict mode, judging its arguments as the kernel does.
fn is_strict(number: i64, arguments: &[u64; 6]) -> bool {
    let low = |at: usize| arguments[at] & u64::from(u32::MAX);
    match number {
        libc::SYS_seccomp => {
            let [_, _, of, ..] = *arguments;
            (low(0), low(1), of) == (SET_MODE_STRICT, 0, 0)
        }
        libc::SYS_prctl => arguments[1] == MODE_STRICT,
        _ => false,
    }
}

/// Returns the rules of strict mode.
fn strict() -> io::Result<refit_sys::seccomp::Program> {
    let filter = Filter::new(Action::Trace(KILLS)).foreign(Action::Trace(KILLS));
    let permitted = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
    let all = permitted.into_iter().fold(filter, |all, one| all.rule(one, Action::Allow));
    all.assemble().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_mode_is_distinguished_from_filters() {
        let seccomp =
            |first, second, third| is_strict(libc::SYS_seccomp, &[first, second, third, 9, 9, 9]);
        assert!(seccomp(0, 0, 0) && seccomp(1 << 32, 1 << 32, 0));
        assert!(!seccomp(1, 0, 0) && !seccomp(0, 1, 0) && !seccomp(0, 0, 1));
        let prctl = |mode| is_strict(libc::SYS_prctl, &[22, mode, 9, 9, 9, 9]);
        assert!(prctl(1) && !prctl(2) && !prctl(1 << 32 | 1));
    }
}
