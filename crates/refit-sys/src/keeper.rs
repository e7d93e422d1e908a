//! Descriptors that stay open until their process has let go of everything else.
//!
//! When a process ends, the kernel closes its descriptors before it kills what it traces (`do_exit`: `exit_files`, then
//! `exit_notify`, where `PTRACE_O_EXITKILL` is seen to). A userfaultfd that is closed so serves nobody any more, and pages that are
//! missing become zeros: for an instant a program that is traced could run on with them.
//!
//! A keeper is another process that shares the table of descriptors and waits for the end of the first: they are closed when both
//! have ended. A process counts as ended, for who waits with a pidfd, when the last of its threads has been through
//! `exit_notify`: whoever was to be killed has got the signal by then.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::pidfd::Pidfd;

/// A process that keeps this one's descriptors open until this one has ended. It ends by itself then, or when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    process: Pidfd,
    id: u32,
    /// Whose child it is: a copy of this value in a child of ours ends nobody.
    parent: u32,
    /// What the keeper waits for, by number, in the table that is shared.
    _own: Pidfd,
}

/// Has descriptors of this process, those opened later too, stay open until all of its threads have ended.
///
/// The keeper is a child that no signal is sent for at its end, so that `wait` does not see it unless asked for with `__WALL`; but
/// [`crate::trace::next`] does, in the thread that has called this, which then does not say that there is nobody to wait for. It
/// holds a copy of this process's memory as of now (pages are shared until one writes), so it is made best while there is little.
///
/// Who waits for this process's end finds its files and sockets closed a moment later only. A process that is to become
/// another program (`exec`) drops the keeper before: it would keep those closed by that.
///
/// # Errors
/// What pidfd_open(2) and clone(2) say: `EMFILE`, `EAGAIN`, `ENOMEM`.
pub fn keep_descriptors() -> io::Result<Keeper> {
    let parent = std::process::id();
    let own = Pidfd::open(parent)?;
    let waits_for = own.as_fd().as_raw_fd();
    // None reaches the child, not even before it blocks them itself.
    let before = block(u64::MAX);
    // SAFETY: as a fork, but for the table of descriptors: the child has memory of its own, and makes system calls only.
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
            // SAFETY: a child that nobody has waited for; no status is asked for.
            unsafe {
                libc::kill(id.cast_signed(), libc::SIGKILL);
                libc::waitpid(id.cast_signed(), std::ptr::null_mut(), libc::__WALL);
            }
            Err(error)
        }
    }
}

/// The life of a keeper. Other threads may have held locks when it was made: nothing is done but system calls.
fn keep(waits_for: i32) -> ! {
    // SAFETY: calls of this process on itself, with a constant text and a structure on its stack. A session of its own: who kills a
    // process group shall not kill both.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"refit keeper".as_ptr(), 0, 0, 0);
        let mut end = libc::pollfd { fd: waits_for, events: libc::POLLIN, revents: 0 };
        // All signals are blocked; a debugger can interrupt it.
        while libc::poll(&raw mut end, 1, -1) < 0 && *libc::__errno_location() == libc::EINTR {}
        libc::_exit(0)
    }
}

/// Sets which signals the calling thread blocks, those of the C library too; which it did before.
fn block(mask: u64) -> u64 {
    let mut before = 0_u64;
    let (set, old) = (&raw const mask, &raw mut before);
    // SAFETY: both are places of the size that is told. It cannot fail.
    unsafe {
        let how = libc::SIG_SETMASK;
        libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, size_of::<u64>());
    }
    before
}

impl Keeper {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if std::process::id() != self.parent {
            return;
        }
        // It may have been killed, and even been waited for by somebody who waits for all.
        let _ = self.process.signal(libc::SIGKILL);
        let fd = self.process.as_fd().as_raw_fd();
        // SAFETY: all zeros are a value of this plain structure, which is a valid place for the answer.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::__WALL;
            while libc::waitid(libc::P_PIDFD, fd as libc::id_t, &raw mut info, how) != 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}
