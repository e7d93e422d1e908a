//! Calls of the system that a holder makes without allocating.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Ends this process as a server with this status has ended.
pub(super) fn end_as(status: Option<i32>) -> ! {
    let status = status.unwrap_or(0);
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    // SAFETY: the process ends.
    unsafe { libc::_exit(code) }
}

/// Makes a child process that shares the table of descriptors. Returns 0 in the child.
pub(super) fn clone_sharing_descriptors() -> io::Result<libc::pid_t> {
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: like a fork of a process with one thread, but for the shared table of descriptors:
    // the child has its own memory. Its first thread only starts another one and waits for it.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if child < 0 { Err(io::Error::last_os_error()) } else { Ok(child as libc::pid_t) }
}

/// Blocks signals and returns a descriptor that reports them, and the mask before.
pub(super) fn signal_descriptor(signals: &[i32]) -> io::Result<(OwnedFd, libc::sigset_t)> {
    // SAFETY: the sets are plain data that the calls fill; the descriptor belongs to nothing else.
    unsafe {
        let (mut set, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fd), before))
    }
}

/// Writes a line to standard error.
pub(super) fn say(line: &[u8]) {
    // SAFETY: the line is valid for its length.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
