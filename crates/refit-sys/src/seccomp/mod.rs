//! System calls of a program told to somebody else, before they are made: seccomp(2), seccomp_unotify(2).
//!
//! A [`Filter`] says by number, and by arguments where that is needed, what becomes of a system call; assembled, it is a
//! [`Program`] that the kernel runs before each call. Installed with [`Install::LISTENER`] it gives a
//! [`Listener`], which is told of the calls it has to answer. A thread keeps its filters until it ends, through `exec` too, and
//! gives them to threads and children that it makes.
//!
//! A program that stands still is given a filter by system calls made in it: `prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)` where
//! it is not privileged, then `seccomp(SECCOMP_SET_MODE_FILTER, flags, address)` ([`Install::call`]), with
//! [`Program::image`] at `address`; the answer is the number of the listener there (`pidfd_getfd` brings it here).
//!
//! By kernel: filters 3.5 (seccomp(2) 3.17), listeners 5.0, CONTINUE 5.5, adding descriptors 5.9 (5.14 at once with the
//! answer), WAIT_KILLABLE_RECV 5.19, waking on the same processor 6.6.

mod filter;
mod listener;
pub mod managed;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use bitflags::bitflags;
use linux_raw_sys::ptrace as raw;

pub use filter::{Action, Condition, Filter, Program, TooLong};
pub use listener::{AddFd, Answer, Listener, Notification};

bitflags! {
    /// How a filter is installed (`SECCOMP_FILTER_FLAG_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Install: u32 {
        /// In all threads of the process; if one has other filters, in none: `ESRCH`.
        const ALL_THREADS = raw::SECCOMP_FILTER_FLAG_TSYNC | raw::SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
        /// Calls that are refused or killed for are logged.
        const LOG = raw::SECCOMP_FILTER_FLAG_LOG;
        /// Without the mitigation of speculative store bypass, which some kernels switch on for filtered threads.
        const SPECULATION = raw::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        /// With a listener; at most one filter of a thread has one (`EBUSY`).
        const LISTENER = raw::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        /// Once a call has been told, only a signal that kills ends the wait for the answer. Such a thread cannot be
        /// stopped by `PTRACE_INTERRUPT` either: not for calls that wait long.
        const WAIT_KILLABLE = raw::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    }
}

impl Install {
    /// The system call, its number and arguments, that installs what is at `address` ([`Program::image`]).
    pub fn call(self, address: u64) -> (i64, [u64; 6]) {
        let operation = u64::from(raw::SECCOMP_SET_MODE_FILTER);
        (libc::SYS_seccomp, [operation, u64::from(self.bits()), address, 0, 0, 0])
    }
}

/// Installs a filter in the calling thread; its listener, if one was asked for.
///
/// # Errors
/// `EACCES`: the thread lacks `CAP_SYS_ADMIN` and may gain privileges yet ([`gain_no_privileges`]). `EBUSY`: it has a
/// listener already. `ESRCH`: [`Install::ALL_THREADS`], and one has other filters. `EINVAL`: a flag the kernel does not have.
///
/// # Safety
/// Calls that do not do what they say they did break what counts on them: those of the code that runs in the thread are
/// answered as the kernel might answer them.
pub unsafe fn install(program: &Program, how: Install) -> io::Result<Option<OwnedFd>> {
    let header = program.header(program.instructions().as_ptr() as u64);
    let (number, [operation, flags, ..]) = how.call(0);
    // SAFETY: the header tells the place and number of the instructions, all of which live over the call.
    let fd = unsafe { libc::syscall(number, operation, flags, header.as_ptr()) };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 && how.contains(Install::LISTENER) => {
            // SAFETY: the kernel has just made this descriptor for us.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
        }
        Ok(0) => Ok(None),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether filters can have listeners here.
///
/// # Errors
/// `EOPNOTSUPP`: they cannot. `ENOSYS`, `EPERM`: the kernel has no filters, or a sandbox forbids to ask.
pub fn offered() -> io::Result<()> {
    let action = raw::SECCOMP_RET_USER_NOTIF;
    let (number, what) = (libc::SYS_seccomp, raw::SECCOMP_GET_ACTION_AVAIL);
    // SAFETY: `action` is a valid place for what is asked about.
    match unsafe { libc::syscall(number, what, 0_u32, &raw const action) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling thread, and what it starts, gains no privileges any more by `exec` (`PR_SET_NO_NEW_PRIVS`): so it may install
/// filters without being privileged.
///
/// # Errors
/// None but on kernels before 3.5.
pub fn gain_no_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}
