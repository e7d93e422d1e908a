//! Events: what traced threads do, and those that they start, told to the one thread that traces them.
//!
//! Threads that one of them makes are traced from their first moment on, if the [`Options`] say so. Each stops with every
//! event, until it is resumed ([`Tracee::of`] has the means). The first event of a new one is
//! [`Event::Interrupted`]; it may be told before the event of whoever made it.

use std::io;

use bitflags::bitflags;

use super::Tracee;
use crate::wait_interrupt::Wakeup;

bitflags! {
    /// What is told of a traced thread (`PTRACE_O_*`); those that it makes inherit it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Options: u32 {
        /// [`Event::Fork`].
        const FORK = libc::PTRACE_O_TRACEFORK.cast_unsigned();
        /// [`Event::Vfork`].
        const VFORK = libc::PTRACE_O_TRACEVFORK.cast_unsigned();
        /// [`Event::Clone`].
        const CLONE = libc::PTRACE_O_TRACECLONE.cast_unsigned();
        /// [`Event::Exec`].
        const EXEC = libc::PTRACE_O_TRACEEXEC.cast_unsigned();
        /// [`Event::VforkDone`].
        const VFORK_DONE = libc::PTRACE_O_TRACEVFORKDONE.cast_unsigned();
        /// [`Event::Exit`].
        const EXIT = libc::PTRACE_O_TRACEEXIT.cast_unsigned();
        /// [`Event::Seccomp`].
        const SECCOMP = libc::PTRACE_O_TRACESECCOMP.cast_unsigned();
        /// System calls are told as [`Event::SystemCall`], not as a `SIGTRAP`.
        const SYSTEM_CALL = libc::PTRACE_O_TRACESYSGOOD.cast_unsigned();
        /// Filters are not asked about its calls: by who has `CAP_SYS_ADMIN`, on kernels with
        /// `CONFIG_CHECKPOINT_RESTORE`.
        const SUSPEND_SECCOMP = libc::PTRACE_O_SUSPEND_SECCOMP.cast_unsigned();
        /// They are killed when the tracing thread ends.
        const EXIT_KILL = libc::PTRACE_O_EXITKILL.cast_unsigned();
    }
}

/// What a traced thread has done, or is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is about to be given this signal, if it is resumed with it.
    Signal(i32),
    /// Its process is stopped by this signal; [`Tracee::leave_stopped`] leaves it so.
    Stopped(i32),
    /// It was interrupted, or is new, or its process goes on after a stop.
    Interrupted,
    /// It enters or leaves a system call ([`Tracee::system_call`]).
    SystemCall,
    /// It has made a process.
    Fork {
        /// Its number.
        child: u32,
    },
    /// It has made a process with its own memory, and waits.
    Vfork {
        /// Its number.
        child: u32,
    },
    /// It has made a thread, or a process in another way than by `fork` and `vfork`.
    Clone {
        /// Its number.
        child: u32,
    },
    /// It has its memory back from the process it has made by `vfork`.
    VforkDone,
    /// It runs another program, and stands before its first instruction. Other threads are gone.
    Exec {
        /// The number it had: now it has that of its process.
        former: u32,
    },
    /// It is about to end; its memory is still there.
    Exit {
        /// As `wait` tells it: the exit code times 256, or a signal.
        status: i32,
    },
    /// A filter tells of a system call ([`crate::seccomp::Action::Trace`]).
    Seccomp {
        /// What the filter says.
        message: u16,
    },
    /// It has ended with this exit code. It is no more.
    Exited(i32),
    /// It was killed by this signal. It is no more.
    Killed(i32),
}

impl Event {
    /// Returns the task that the thread has made, if that is the event.
    pub fn child(self) -> Option<u32> {
        match self {
            Self::Fork { child } | Self::Vfork { child } | Self::Clone { child } => Some(child),
            _ => None,
        }
    }
}

impl Options {
    pub(crate) fn number(self) -> usize {
        self.bits() as usize
    }
}

/// The next event of any thread that the calling thread traces, or of a process it has made, and its number. `None`: none has
/// happened, and `wait` is not set.
///
/// # Errors
/// `ECHILD`: there are none. `EINTR`: a signal came.
pub fn next(wait: bool) -> io::Result<Option<(u32, Event)>> {
    of(-1, wait)
}

/// As [`next`]; waits, until `wakeup` is signalled, which the calling thread [hears](Wakeup::hear).
///
/// # Errors
/// As [`next`]; `EINTR`: it was signalled, too.
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

/// As [`next`], of one thread.
///
/// # Errors
/// As [`next`]; `ECHILD`: it is not traced by the calling thread.
pub fn next_of(thread: u32, wait: bool) -> io::Result<Option<(u32, Event)>> {
    let number = i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    of(number, wait)
}

fn of(whom: libc::pid_t, wait: bool) -> io::Result<Option<(u32, Event)>> {
    // Those of other threads of this process are theirs to wait for.
    let how = libc::__WALL | libc::__WNOTHREAD | if wait { 0 } else { libc::WNOHANG };
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the answer.
        let thread = match unsafe { libc::waitpid(whom, &raw mut status, how) } {
            0 => return Ok(None),
            thread => u32::try_from(thread).map_err(|_| io::Error::last_os_error())?,
        };
        if let Some(event) = living(thread, status)? {
            return Ok(Some((thread, event)));
        }
    }
}

/// What a thread has told; `None`: it was killed since, and its end is the next that is told.
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
