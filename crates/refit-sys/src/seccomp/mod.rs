//! Intercepting the system calls of a program before they are made: seccomp(2), seccomp_unotify(2).
//!
//! A [`Filter`] decides what happens to a system call, by its number and, where necessary, by its
//! arguments. Assembled, it is a [`Program`] that the kernel runs before each call. Installed with
//! [`Install::LISTENER`], it returns a [`Listener`], which receives the calls that it has to
//! answer. A thread keeps its filters until it ends, across `exec` too, and passes them on to
//! threads and children that it creates.
//!
//! A stopped program gets a filter by system calls that a tracer makes in it:
//! `prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)` if it is not privileged, then
//! `seccomp(SECCOMP_SET_MODE_FILTER, flags, address)` ([`Install::call`]), with [`Program::image`]
//! at `address`. The result is the number of the listener in the program, which `pidfd_getfd`
//! duplicates into this process.
//!
//! Kernel versions: filters 3.5 (seccomp(2) 3.17), listeners 5.0, CONTINUE 5.5, adding descriptors
//! 5.9 (as the answer 5.14), WAIT_KILLABLE_RECV 5.19, waking on the same processor 6.6.

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
    /// The flags for installing a filter (`SECCOMP_FILTER_FLAG_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Install: u32 {
        /// Installs it in all threads of the process; if one has other filters, in none: `ESRCH`.
        const ALL_THREADS = raw::SECCOMP_FILTER_FLAG_TSYNC | raw::SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
        /// Logs calls that are refused or killed for.
        const LOG = raw::SECCOMP_FILTER_FLAG_LOG;
        /// Skips the mitigation of speculative store bypass, which some kernels switch on for
        /// filtered threads.
        const SPECULATION = raw::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        /// Adds a listener; at most one filter of a thread may have one (`EBUSY`).
        const LISTENER = raw::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        /// Once a call has been received, only a fatal signal ends its wait for the answer.
        /// `PTRACE_INTERRUPT` cannot stop such a thread either, so this does not suit calls that
        /// wait long.
        const WAIT_KILLABLE = raw::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    }
}

impl Install {
    /// Returns the number and arguments of the system call that installs the [`Program::image`] at
    /// `address`.
    pub fn call(self, address: u64) -> (i64, [u64; 6]) {
        let operation = u64::from(raw::SECCOMP_SET_MODE_FILTER);
        (libc::SYS_seccomp, [operation, u64::from(self.bits()), address, 0, 0, 0])
    }
}

/// Installs a filter in the calling thread. Returns its listener, if one was asked for.
///
/// # Errors
/// `EACCES`: the thread lacks `CAP_SYS_ADMIN` and can still gain privileges
/// ([`gain_no_privileges`]). `EBUSY`: it has a listener already. `ESRCH`: [`Install::ALL_THREADS`],
/// and one has other filters. `EINVAL`: the kernel lacks a flag.
///
/// # Safety
/// Code that makes a call relies on the call having done what its result says. So the calls of the
/// code that runs in the thread must be answered as the kernel might answer them.
pub unsafe fn install(program: &Program, how: Install) -> io::Result<Option<OwnedFd>> {
    let header = program.header(program.instructions().as_ptr() as u64);
    let (number, [operation, flags, ..]) = how.call(0);
    // SAFETY: the header holds the address and number of the instructions, all of which outlive the
    // call.
    let fd = unsafe { libc::syscall(number, operation, flags, header.as_ptr()) };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 && how.contains(Install::LISTENER) => {
            // SAFETY: the kernel has just created this descriptor for this call.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
        }
        Ok(0) => Ok(None),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The error that a program decides by a filter of its own which calls it may make, so refit cannot
/// install a filter in all of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has a seccomp filter of its own")]
pub struct OwnFilter;

impl From<OwnFilter> for io::Error {
    fn from(error: OwnFilter) -> Self {
        io::Error::other(error)
    }
}

/// Checks whether filters can have listeners on this host.
///
/// # Errors
/// `EOPNOTSUPP`: they cannot. `ENOSYS`, `EPERM`: the kernel has no filters, or a sandbox forbids
/// the query.
pub fn offered() -> io::Result<()> {
    let action = raw::SECCOMP_RET_USER_NOTIF;
    let (number, what) = (libc::SYS_seccomp, raw::SECCOMP_GET_ACTION_AVAIL);
    // SAFETY: `action` is a valid number, which the kernel reads.
    match unsafe { libc::syscall(number, what, 0_u32, &raw const action) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the calling thread, and whatever it starts, gain no privileges by `exec` any more
/// (`PR_SET_NO_NEW_PRIVS`), so that it may install filters without being privileged.
///
/// # Errors
/// `EINVAL` on kernels before 3.5.
pub fn gain_no_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}
