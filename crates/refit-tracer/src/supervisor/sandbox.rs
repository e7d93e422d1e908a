//! Programs that limit their own calls (seccomp).
//!
//! A filter of the program's own would look at calls that refit makes in its threads, too, and at
//! those of a shadow that waits for calls: it could kill the program for them. So a process that
//! limits its calls stays at home from then on, and so do those that it makes. One of which threads
//! are elsewhere has all of them back before the call is made that limits it
//! ([`TracerHook::on_event`](crate::TracerHook::on_event)).
//!
//! *Strict mode* (`SECCOMP_MODE_STRICT`) the kernel gives nobody who has a filter already, as
//! programs have from refit. So the thread is given a filter instead that permits the same calls,
//! and tells of all others: for those the thread is killed, as in strict mode.
//!
//! ```text
//!   before seccomp(STRICT) ──► the call is another: seccomp(FILTER, rules behind the vDSO's code) ──► its own registers again
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Mutex;

use refit_sys::foreign::Memory;
use refit_sys::seccomp::managed::KILLS;
use refit_sys::seccomp::{Action, Filter, Install};
use refit_sys::trace::{Event, Registers, Tracee};
use refit_sys::{maps, slack};

use crate::process;
use crate::supervisor::lock;

/// `linux/seccomp.h`.
const SET_MODE_STRICT: u64 = 0;
const MODE_STRICT: u64 = 1;

/// Who limits its own calls.
#[derive(Debug, Default)]
pub(super) struct Sandbox {
    /// Processes that do.
    processes: Mutex<BTreeSet<u32>>,
    /// Threads that are in strict mode.
    strict: Mutex<BTreeSet<u32>>,
    /// Threads that are about to be, and the registers that they have behind the call, but for what
    /// it returns.
    entering: Mutex<BTreeMap<u32, Registers>>,
}

impl Sandbox {
    /// Whether a process limits its calls, or has been about to.
    pub(super) fn has(&self, process: u32) -> bool {
        lock(&self.processes).contains(&process)
    }

    /// A thread is about to limit its calls.
    pub(super) fn begins(&self, held: &Tracee, number: i64, arguments: &[u64; 6]) {
        let task = held.thread();
        let process = process::process_of(task).unwrap_or(task);
        let first = lock(&self.processes).insert(process);
        // Where it has filters already the kernel refuses, as it would without ours.
        if first && is_strict(number, arguments) {
            // What cannot be had the kernel refuses.
            let _ = self.enter_strict(held);
        }
    }

    fn enter_strict(&self, held: &Tracee) -> io::Result<()> {
        let task = held.thread();
        let own = held.registers()?;
        let memory = Memory::of(task)?;
        let mappings = maps::of(task)?;
        let slack = slack::all(&memory, &mappings).next();
        let slack = slack.ok_or(io::ErrorKind::OutOfMemory)?;
        memory.write(slack.start, &slack::MARK)?;
        let place = slack.start + slack::SIZE / 2;
        memory.write(place, &strict()?.image(place))?;
        let (number, [operation, flags, at, ..]) = Install::empty().call(place);
        let asks = Registers { rdi: operation, rsi: flags, rdx: at, ..own };
        held.set_registers(&Registers { orig_rax: number.cast_unsigned(), ..asks })?;
        lock(&self.entering).insert(task, own);
        Ok(())
    }

    /// Before anybody else looks at an event of a thread: behind the call its registers are its
    /// own.
    pub(super) fn look(&self, held: &Tracee, event: Event) {
        let mut entering = lock(&self.entering);
        if event != Event::SystemCall
            || !entering.contains_key(&held.thread())
            || !held.has_returned()
        {
            return;
        }
        let Some(own) = entering.remove(&held.thread()) else { return };
        // Killed meanwhile, if not.
        let Ok(now) = held.registers() else { return };
        if now.rax == 0 {
            lock(&self.strict).insert(held.thread());
        }
        let _ = held.set_registers(&Registers { rax: now.rax, ..own });
    }

    /// Whether a thread is told of at the end of the call that it stands before.
    pub(super) fn is_entering(&self, task: u32) -> bool {
        lock(&self.entering).contains_key(&task)
    }

    /// Whether a thread is in strict mode: what a filter of refit's tells of it ends it.
    pub(super) fn is_strict(&self, task: u32) -> bool {
        lock(&self.strict).contains(&task)
    }

    /// A thread in strict mode has made a call that it may not make: it ends, and its process with
    /// it if it is alone.
    pub(super) fn kills(held: &Tracee) -> io::Result<()> {
        let task = held.thread();
        let process = process::process_of(task).unwrap_or(task);
        if refit_sys::process::threads(process).len() <= 1 {
            return process::kill(process);
        }
        let registers = held.registers()?;
        let exit = libc::SYS_exit.cast_unsigned();
        held.set_registers(&Registers { orig_rax: exit, rdi: libc::SIGKILL as u64, ..registers })
    }

    /// A new process limits its calls as its parent does.
    pub(super) fn inherit(&self, task: u32) {
        let mut processes = lock(&self.processes);
        // As a rule there are none.
        if !processes.is_empty()
            && process::parent_of(task).is_some_and(|from| processes.contains(&from))
        {
            processes.insert(task);
        }
    }

    /// A task is no more.
    pub(super) fn forget(&self, task: u32) {
        lock(&self.processes).remove(&task);
        lock(&self.strict).remove(&task);
        lock(&self.entering).remove(&task);
    }
}

/// Whether a call asks for strict mode, as the kernel takes its arguments.
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

/// What strict mode permits.
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
    fn strict_mode_is_told_from_filters() {
        let seccomp =
            |first, second, third| is_strict(libc::SYS_seccomp, &[first, second, third, 9, 9, 9]);
        assert!(seccomp(0, 0, 0) && seccomp(1 << 32, 1 << 32, 0));
        assert!(!seccomp(1, 0, 0) && !seccomp(0, 1, 0) && !seccomp(0, 0, 1));
        let prctl = |mode| is_strict(libc::SYS_prctl, &[22, mode, 9, 9, 9, 9]);
        assert!(prctl(1) && !prctl(2) && !prctl(1 << 32 | 1));
    }
}
