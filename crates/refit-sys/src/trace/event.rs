//! Events of traced threads, and of the threads that they create. The thread that traces them
//! receives all of these.
//!
//! Threads that a tracee creates are traced from their first moment on, if the
//! [`Options`](super::Options) say so. Each thread stops at every event, until it is resumed
//! ([`Tracee::of`] gives access to it). The first event of a new thread is [`Event::Interrupted`];
//! it may arrive before the event of its creator.

use std::io;

use super::Tracee;
use crate::wait_interrupt::Wakeup;

/// An action that a traced thread has taken, or is about to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The thread is about to receive this signal, if it is resumed with it.
    Signal(i32),
    /// This signal has stopped its process; [`Tracee::leave_stopped`] leaves it so.
    Stopped(i32),
    /// The thread was interrupted, or is new, or its process continues after a stop.
    Interrupted,
    /// The thread enters or leaves a system call ([`Tracee::system_call`]).
    SystemCall,
    /// The thread has created a process.
    Fork {
        /// The number of the process.
        child: u32,
    },
    /// The thread has created a process that borrows its memory, and waits.
    Vfork {
        /// The number of the process.
        child: u32,
    },
    /// The thread has created a thread, or a process in another way than by `fork` and `vfork`.
    Clone {
        /// The number of the task.
        child: u32,
    },
    /// The process that it has created by `vfork` has released its memory.
    VforkDone,
    /// The thread has executed another program, and is before its first instruction. The other
    /// threads have ended.
    Exec {
        /// The number that it had; now it has that of its process.
        former: u32,
    },
    /// The thread is about to end; its memory still exists.
    Exit {
        /// Its status as `wait` returns it: the exit code times 256, or a signal.
        status: i32,
    },
    /// A filter has reported a system call ([`crate::seccomp::Action::Trace`]).
    Seccomp {
        /// The filter's message.
        message: u16,
    },
    /// The thread has ended with this exit code, and is reaped.
    Exited(i32),
    /// This signal has killed it, and it is reaped.
    Killed(i32),
}

impl Event {
    /// Returns the task that the thread has created, if that is the event.
    pub fn child(self) -> Option<u32> {
        match self {
            Self::Fork { child } | Self::Vfork { child } | Self::Clone { child } => Some(child),
            _ => None,
        }
    }
}

/// Returns the next event, and the thread's number, of any thread that the calling thread traces or
/// process that it has created. `None`: there is none, and `wait` is not set.
///
/// # Errors
/// `ECHILD`: there is nothing to wait for. `EINTR`: a signal arrived.
pub fn next(wait: bool) -> io::Result<Option<(u32, Event)>> {
    of(-1, wait)
}

/// As [`next`]; waits until there is an event or `wakeup` is rung, which the calling thread
/// [hears](Wakeup::hear).
///
/// # Errors
/// As [`next`]; `EINTR` also if `wakeup` was rung.
pub fn next_unless(wakeup: &Wakeup) -> io::Result<(u32, Event)> {
    let how = libc::__WALL | libc::__WNOTHREAD;
    loop {
        let mut status = 0;
        let thread = wakeup.wait4(&mut status, how)?.cast_unsigned();
        if let Some(event) = living(thread, status)? {
            return Ok((thread, event));
        }
    }
}

/// As [`next`], for one thread.
///
/// # Errors
/// As [`next`]; `ECHILD`: the calling thread does not trace it.
pub fn next_of(thread: u32, wait: bool) -> io::Result<Option<(u32, Event)>> {
    let number = i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    of(number, wait)
}

fn of(whom: libc::pid_t, wait: bool) -> io::Result<Option<(u32, Event)>> {
    // Other threads of this process wait for their own.
    let how = libc::__WALL | libc::__WNOTHREAD | if wait { 0 } else { libc::WNOHANG };
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for the answer.
        let thread = match unsafe { libc::waitpid(whom, &raw mut status, how) } {
            0 => return Ok(None),
            thread => u32::try_from(thread).map_err(|_| io::Error::last_os_error())?,
        };
        if let Some(event) = living(thread, status)? {
            return Ok(Some((thread, event)));
        }
    }
}

/// Returns the event of a thread; `None`: it has been killed since, and its end is the next event.
fn living(thread: u32, status: i32) -> io::Result<Option<Event>> {
    match event(thread, status) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        event => event.map(Some),
    }
}

fn event(thread: u32, status: i32) -> io::Result<Event> {
    if libc::WIFEXITED(status) {
        return Ok(Event::Exited(libc::WEXITSTATUS(status)));
    }
    if libc::WIFSIGNALED(status) {
        return Ok(Event::Killed(libc::WTERMSIG(status)));
    }
    let message = || {
        let held = Tracee::of(thread);
        let message = held.message();
        held.leave();
        message
    };
    let signal = libc::WSTOPSIG(status);
    Ok(match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => Event::SystemCall,
        libc::PTRACE_EVENT_FORK => Event::Fork { child: message()? as u32 },
        libc::PTRACE_EVENT_VFORK => Event::Vfork { child: message()? as u32 },
        libc::PTRACE_EVENT_CLONE => Event::Clone { child: message()? as u32 },
        libc::PTRACE_EVENT_EXEC => Event::Exec { former: message()? as u32 },
        libc::PTRACE_EVENT_VFORK_DONE => Event::VforkDone,
        libc::PTRACE_EVENT_EXIT => Event::Exit { status: message()? as i32 },
        libc::PTRACE_EVENT_SECCOMP => Event::Seccomp { message: message()? as u16 },
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Event::Interrupted,
        libc::PTRACE_EVENT_STOP => Event::Stopped(signal),
        _ => Event::Signal(signal),
    })
}
