//! A descriptor keeper: a process that keeps the descriptors of another process open until all
//! threads of that process have ended and the kernel has killed its tracees.
//!
//! When a process ends, the kernel closes its descriptors before it kills its tracees (`do_exit`:
//! `exit_files`, then `exit_notify`, which handles `PTRACE_O_EXITKILL`). A userfaultfd that is
//! closed in this way no longer serves faults, and missing pages become zeros: for an instant, a
//! traced program could continue with these zeros.
//!
//! A keeper shares the table of descriptors with the process and waits for its end, so the
//! descriptors are closed only when both have ended. A pidfd reports the end of a process when the
//! last of its threads has passed `exit_notify`; all tracees that the kernel kills have received
//! the signal by then.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::pidfd::Pidfd;

/// A process that keeps the descriptors of this process open until this process has ended. The
/// keeper then ends by itself; it also ends when this value is dropped.
#[derive(Debug)]
pub struct Keeper {
    process: Pidfd,
    id: u32,
    /// The process that made the keeper. A copy of this value in a forked child does not end the
    /// keeper.
    parent: u32,
    /// The descriptor that the keeper polls, by its number in the shared table.
    _own: Pidfd,
}

/// Keeps the descriptors of this process, those opened later included, open until all of its
/// threads have ended.
///
/// The keeper is a child without an exit signal, so `wait` reports it only if called with `__WALL`.
/// [`crate::trace::next`] uses `__WALL`: in the thread that has called this function, it never
/// reports that there is nothing to wait for. The keeper has a copy of this process's memory as of
/// now (pages are shared until one side writes), so it is best made while the process is small.
///
/// Other processes that wait for this process's end see its files and sockets close a moment later.
/// A process that is about to `exec` has to drop the keeper first: the keeper would keep the
/// close-on-exec descriptors open.
///
/// # Errors
/// The errors of pidfd_open(2) and clone(2): `EMFILE`, `EAGAIN`, `ENOMEM`.
pub fn keep_descriptors() -> io::Result<Keeper> {
    let parent = std::process::id();
    let own = Pidfd::open(parent)?;
    let waits_for = own.as_fd().as_raw_fd();
    // No signal may reach the child, not even before the child has blocked all signals.
    let before = block(u64::MAX);
    // SAFETY: like a fork, but for the shared table of descriptors: the child has its own memory,
    // and makes system calls only.
    let made = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_FILES, 0, 0, 0, 0) };
    if made == 0 {
        keep(waits_for);
    }
    let error = io::Error::last_os_error();
    block(before);
    let id = u32::try_from(made).map_err(|_| error)?;
    match Pidfd::open(id) {
        Ok(process) => Ok(Keeper { process, id, parent, _own: own }),
        Err(error) => {
            // SAFETY: a child that has not been waited for; its status is not stored.
            unsafe {
                libc::kill(id.cast_signed(), libc::SIGKILL);
                libc::waitpid(id.cast_signed(), std::ptr::null_mut(), libc::__WALL);
            }
            Err(error)
        }
    }
}

/// Runs the keeper. Other threads may have held locks when it was forked, so it does nothing but
/// make system calls.
fn keep(waits_for: i32) -> ! {
    // SAFETY: calls of this process on itself, with a constant string and a structure on its stack.
    // It gets its own session, since a signal that kills the process group of the first process
    // must not kill both.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"refit keeper".as_ptr(), 0, 0, 0);
        let mut end = libc::pollfd { fd: waits_for, events: libc::POLLIN, revents: 0 };
        // All signals are blocked, but a debugger can interrupt the call.
        while libc::poll(&raw mut end, 1, -1) < 0 && *libc::__errno_location() == libc::EINTR {}
        libc::_exit(0)
    }
}

/// Sets the signals that the calling thread blocks, those of the C library included. Returns the
/// previous mask.
fn block(mask: u64) -> u64 {
    let mut before = 0_u64;
    let (set, old) = (&raw const mask, &raw mut before);
    // SAFETY: both pointers are valid for the size passed. The call cannot fail.
    unsafe {
        let how = libc::SIG_SETMASK;
        libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, size_of::<u64>());
    }
    before
}

impl Keeper {
    /// Returns the keeper's process id.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if std::process::id() != self.parent {
            return;
        }
        // The keeper may have been killed already, and even been reaped by a caller that waits for
        // all children.
        let _ = self.process.signal(libc::SIGKILL);
        let fd = self.process.as_fd().as_raw_fd();
        // SAFETY: all zeros are a valid value of this plain structure, which receives the answer.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::__WALL;
            while libc::waitid(libc::P_PIDFD, fd as libc::id_t, &raw mut info, how) != 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}
