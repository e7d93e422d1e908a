//! Counts the instructions between two marks of a program by single-stepping it.
//!
//! An emulator could count too, but offers the program neither rseq nor membarrier. A processor
//! that is single-stepped with `ptrace` runs exactly the instructions that it runs otherwise. A
//! system call counts as one instruction.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Marks a place for [`count_instructions`]. Kills a process that is not stepped with `SIGTRAP`.
#[inline(always)]
pub fn mark() {
    // SAFETY: a breakpoint trap; the tracer resumes the process after it, and nothing is changed.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("int3", options(nomem, nostack, preserves_flags));
    }
    // SAFETY: no memory is accessed; the tracer handles the signal.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        libc::raise(libc::SIGTRAP);
    }
}

/// The error that a program could not be stepped from its first instruction to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// Its first stop is not that of its `exec`.
    #[error("it did not stop when it was started")]
    NotStopped,
    /// The program has ended with this wait status, or between two marks.
    #[error("it ended with status {0:#x}")]
    Ended(i32),
}

impl From<StepError> for io::Error {
    fn from(error: StepError) -> Self {
        io::Error::other(error)
    }
}

/// Runs a program to its end. Returns, for each pair of marks, the number of instructions that its
/// main thread has run from the first to the second, without the marks.
///
/// # Errors
/// It cannot be started or traced, it dies of a signal, or it ends with an open mark.
pub fn count_instructions(command: &mut Command) -> io::Result<Vec<u64>> {
    // SAFETY: between fork and exec only an async-signal-safe system call is made.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let child = command.spawn()?;
    let pid = child.id() as libc::pid_t;
    let result = step_through(pid);
    if result.is_err() {
        // SAFETY: `pid` is a child of this process that has not been waited for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
        }
    }
    result
}

fn step_through(pid: libc::pid_t) -> io::Result<Vec<u64>> {
    let (mut counts, mut open): (Vec<u64>, Option<u64>) = (Vec::new(), None);
    // The first stop is the exec.
    let mut signal = match wait(pid)? {
        Stop::Signal(libc::SIGTRAP) => 0,
        _ => return Err(StepError::NotStopped.into()),
    };
    loop {
        let how = if open.is_some() { libc::PTRACE_SINGLESTEP } else { libc::PTRACE_CONT };
        resume(pid, how, signal)?;
        signal = match wait(pid)? {
            Stop::Ended(0) if open.is_none() => return Ok(counts),
            Stop::Ended(status) => {
                return Err(StepError::Ended(status).into());
            }
            Stop::Signal(libc::SIGTRAP) if at_mark(pid)? => {
                match open.take() {
                    // The step to the mark has executed it.
                    Some(steps) => counts.push(steps),
                    None => open = Some(0),
                }
                0
            }
            Stop::Signal(libc::SIGTRAP) => {
                open = open.map(|steps| steps + 1);
                0
            }
            Stop::Signal(other) => other,
        };
    }
}

enum Stop {
    Signal(i32),
    Ended(i32),
}

fn wait(pid: libc::pid_t) -> io::Result<Stop> {
    let mut status = 0;
    // SAFETY: `status` is valid for the answer.
    if unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } != pid {
        return Err(io::Error::last_os_error());
    }
    Ok(if libc::WIFSTOPPED(status) {
        Stop::Signal(libc::WSTOPSIG(status))
    } else {
        Stop::Ended(status)
    })
}

fn resume(pid: libc::pid_t, how: libc::c_uint, signal: i32) -> io::Result<()> {
    // SAFETY: the child is stopped and traced by this thread; no memory is passed.
    match unsafe { libc::ptrace(how, pid, 0_usize, signal as usize) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether the stop is that of a breakpoint instruction, and not of a step.
fn at_mark(pid: libc::pid_t) -> io::Result<bool> {
    // SAFETY: a zeroed siginfo_t is valid for the answer.
    let info = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_GETSIGINFO, pid, 0_usize, &raw mut info) != 0 {
            return Err(io::Error::last_os_error());
        }
        info
    };
    // A step has TRAP_TRACE; int3 has SI_KERNEL, and `raise` has SI_TKILL.
    Ok(info.si_code != libc::TRAP_TRACE)
}
