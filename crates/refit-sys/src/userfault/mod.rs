//! Page faults served by user space: userfaultfd(2), ioctl_userfaultfd(2).
//!
//! The holder of a process's [`Userfault`] selects the addresses that it serves
//! ([`register`](Userfault::register)). A thread that accesses a page there which is missing, or
//! writes to one that is write-protected, waits. In the meantime the server reads the event
//! ([`read`](Userfault::read)), and resolves it by address and length:
//!
//! | fault | registered as | resolved by |
//! |---|---|---|
//! | missing: no page | [`Modes::MISSING`] | [`copy`], [`zero`], [`poison`], [`move_pages`] |
//! | minor: the page is in its file only | [`Modes::MINOR`] | [`continue_minor`], [`poison`] |
//! | a write to a protected page | [`Modes::WRITE_PROTECT`] | [`unprotect`] |
//!
//! (A minor fault means that the page is not in the page table.)
//!
//! [`copy`]: Userfault::copy
//! [`zero`]: Userfault::zero
//! [`poison`]: Userfault::poison
//! [`move_pages`]: Userfault::move_pages
//! [`continue_minor`]: Userfault::continue_minor
//! [`unprotect`]: Userfault::unprotect
//!
//! Addresses and lengths are in bytes, in the served process, and multiples of its page size.
//!
//! A thread can also wait inside of a system call that accesses its memory; while it does,
//! `PTRACE_INTERRUPT` does not stop it. [`USER_MODE_ONLY`] excludes that: the system call fails
//! with `EFAULT` instead.
//!
//! The mapping determines what can be registered (measured on 6.18): MISSING and WRITE_PROTECT for
//! anonymous private memory; all three for memfds, shared or private; WRITE_PROTECT with
//! [`Features::WP_ASYNC`] only for other files.
//!
//! Kernel versions: MISSING, COPY, ZEROPAGE, WAKE 4.3; events 4.11; WRITE_PROTECT 5.7;
//! USER_MODE_ONLY 5.11; MINOR, CONTINUE 5.13; `/dev/userfaultfd` 6.1; WP_UNPOPULATED 6.4; POISON
//! 6.6; WP_ASYNC 6.7; MOVE 6.8.

mod message;
mod resolve;

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use bitflags::bitflags;
use linux_raw_sys::general as raw;
use rustix::ioctl::opcode;

pub use message::{Access, Message};
pub use resolve::{Cause, CopyModes, MOVE_LENGTH, MoveModes, Short, Wake, move_call, moved};
/// The flags for opening a [`Userfault`]: `CLOEXEC`, `NONBLOCK` (without which it cannot be
/// polled), [`USER_MODE_ONLY`].
pub use rustix::mm::UserfaultfdFlags as Flags;

/// Faults in system calls are not served, but fail. Any user may open a userfaultfd with this flag
/// (5.11).
pub const USER_MODE_ONLY: Flags = Flags::from_bits_retain(1);

/// The ioctl type of its requests.
const GROUP: u8 = 0xaa;

bitflags! {
    /// The features that a user requests and the kernel offers (`UFFD_FEATURE_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Features: u64 {
        /// Messages include whether a fault was one of write protection.
        const PAGEFAULT_FLAG_WP = raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
        /// Reports `fork`, and serves the child's memory by a descriptor of its own.
        const EVENT_FORK = raw::UFFD_FEATURE_EVENT_FORK as u64;
        /// Reports `mremap`.
        const EVENT_REMAP = raw::UFFD_FEATURE_EVENT_REMAP as u64;
        /// Reports `madvise` with `MADV_REMOVE` or `MADV_DONTNEED`.
        const EVENT_REMOVE = raw::UFFD_FEATURE_EVENT_REMOVE as u64;
        /// Missing faults on huge pages.
        const MISSING_HUGETLBFS = raw::UFFD_FEATURE_MISSING_HUGETLBFS as u64;
        /// Missing faults on shared memory.
        const MISSING_SHMEM = raw::UFFD_FEATURE_MISSING_SHMEM as u64;
        /// Reports `munmap`.
        const EVENT_UNMAP = raw::UFFD_FEATURE_EVENT_UNMAP as u64;
        /// Reports no faults: the faulting thread receives `SIGBUS`.
        const SIGBUS = raw::UFFD_FEATURE_SIGBUS as u64;
        /// Messages include the faulting thread.
        const THREAD_ID = raw::UFFD_FEATURE_THREAD_ID as u64;
        /// Minor faults on huge pages.
        const MINOR_HUGETLBFS = raw::UFFD_FEATURE_MINOR_HUGETLBFS as u64;
        /// Minor faults on shared memory.
        const MINOR_SHMEM = raw::UFFD_FEATURE_MINOR_SHMEM as u64;
        /// Messages include the address that was accessed, not that of its page.
        const EXACT_ADDRESS = raw::UFFD_FEATURE_EXACT_ADDRESS as u64;
        /// Write protection of shared memory and huge pages.
        const WP_HUGETLBFS_SHMEM = raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64;
        /// Pages that are not present yet can be write-protected.
        const WP_UNPOPULATED = raw::UFFD_FEATURE_WP_UNPOPULATED as u64;
        /// Pages can be poisoned, so that an access raises `SIGBUS`.
        const POISON = raw::UFFD_FEATURE_POISON as u64;
        /// The kernel removes write protection by itself; `PAGEMAP_SCAN` reports what was written.
        const WP_ASYNC = raw::UFFD_FEATURE_WP_ASYNC as u64;
        /// Pages can be moved without a copy.
        const MOVE = raw::UFFD_FEATURE_MOVE as u64;
        /// Features that later kernels add.
        const _ = !0;
    }

    /// The faults of a range that are served (`UFFDIO_REGISTER_MODE_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Modes: u64 {
        /// Accesses to missing pages.
        const MISSING = raw::UFFDIO_REGISTER_MODE_MISSING as u64;
        /// Writes to write-protected pages.
        const WRITE_PROTECT = raw::UFFDIO_REGISTER_MODE_WP as u64;
        /// Accesses to pages that are in their file, but not in the page table.
        const MINOR = raw::UFFDIO_REGISTER_MODE_MINOR as u64;
    }

    /// The requests that are possible on a registered range.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Requests: u64 {
        /// [`Userfault::wake`].
        const WAKE = 1 << raw::_UFFDIO_WAKE;
        /// [`Userfault::copy`].
        const COPY = 1 << raw::_UFFDIO_COPY;
        /// [`Userfault::zero`].
        const ZERO = 1 << raw::_UFFDIO_ZEROPAGE;
        /// [`Userfault::move_pages`].
        const MOVE = 1 << raw::_UFFDIO_MOVE;
        /// [`Userfault::protect`], [`Userfault::unprotect`].
        const WRITE_PROTECT = 1 << raw::_UFFDIO_WRITEPROTECT;
        /// [`Userfault::continue_minor`].
        const CONTINUE = 1 << raw::_UFFDIO_CONTINUE;
        /// [`Userfault::poison`].
        const POISON = 1 << raw::_UFFDIO_POISON;
        /// Requests that later kernels add.
        const _ = !0;
    }
}

/// The interface that opens a [`Userfault`]. The two differ in the permissions that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The system call: `CAP_SYS_PTRACE`, or `vm.unprivileged_userfaultfd` = 1, or
    /// [`USER_MODE_ONLY`].
    Call,
    /// `/dev/userfaultfd` (6.1): the right to open the file.
    Device,
}

/// A userfaultfd: serves page faults of the process that has opened it.
#[derive(Debug)]
pub struct Userfault {
    fd: OwnedFd,
}

impl Userfault {
    /// Opens a userfaultfd for the memory of this process. [`agree`](Self::agree) has to come next.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`: this user may not open it. `ENOSYS`, `ENOENT`: the kernel, or a sandbox,
    /// does not offer it. `EINVAL`: invalid flags.
    ///
    /// # Safety
    /// Nothing in this process may hold a reference to registered memory, or rely on its contents:
    /// the server that resolves its faults changes it.
    pub unsafe fn open(door: Door, flags: Flags) -> io::Result<Self> {
        let fd = match door {
            // SAFETY: the caller's obligation is that of this function.
            Door::Call => unsafe { rustix::mm::userfaultfd(flags) }?,
            Door::Device => Self::by_device(flags)?,
        };
        Ok(Self { fd })
    }

    fn by_device(flags: Flags) -> io::Result<OwnedFd> {
        let device = std::fs::File::options().read(true).write(true).open("/dev/userfaultfd")?;
        let request = libc::Ioctl::from(opcode::none(GROUP, 0));
        // SAFETY: USERFAULTFD_IOC_NEW takes a number.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), request, flags.bits()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Negotiates version and features with the kernel, once. Returns all features that it offers;
    /// only the requested ones are on.
    ///
    /// # Errors
    /// `EINVAL`: the kernel lacks one of them, or this was called before. `EPERM`:
    /// [`Features::EVENT_FORK`] without `CAP_SYS_PTRACE`.
    pub fn agree(&self, asked: Features) -> io::Result<Features> {
        let mut api =
            raw::uffdio_api { api: u64::from(raw::UFFD_API), features: asked.bits(), ioctls: 0 };
        // SAFETY: the structure is that of the request, which accesses nothing else.
        unsafe { self.ask(opcode::read_write::<raw::uffdio_api>(GROUP, 0x3f), &mut api) }?;
        Ok(Features::from_bits_retain(api.features))
    }

    /// Serves the faults of a range that is mapped, and that no other userfaultfd serves. Returns
    /// the requests that are possible there.
    ///
    /// # Errors
    /// `EINVAL`: the range is not mapped, is not whole pages, or is memory whose faults of this
    /// kind cannot be served. `EBUSY`: another userfaultfd serves it. `EPERM`: a file that the
    /// process may not write. `ESRCH`, `ENOMEM`: the process has ended.
    pub fn register(&self, range: Range<u64>, modes: Modes) -> io::Result<Requests> {
        let mut register =
            raw::uffdio_register { range: span(&range), mode: modes.bits(), ioctls: 0 };
        // SAFETY: the structure is that of the request. Its effect on memory of this process is
        // covered by the contract of `open`.
        unsafe { self.ask(opcode::read_write::<raw::uffdio_register>(GROUP, 0), &mut register) }?;
        Ok(Requests::from_bits_retain(register.ioctls))
    }

    /// Stops serving the faults of a range. Threads that wait there continue, and fault as
    /// elsewhere.
    ///
    /// # Errors
    /// `EINVAL`: the range is not mapped, or is not whole pages. `ENOMEM`: the process has ended.
    pub fn unregister(&self, range: Range<u64>) -> io::Result<()> {
        // SAFETY: the structure is that of the request; the memory becomes ordinary again.
        unsafe { self.ask(opcode::read::<raw::uffdio_range>(GROUP, 1), &mut span(&range)) }
    }

    /// Makes a request.
    ///
    /// # Safety
    /// As [`crate::ioctl::ask`].
    unsafe fn ask<T>(&self, request: rustix::ioctl::Opcode, argument: &mut T) -> io::Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { crate::ioctl::ask(self.fd.as_fd(), request, argument) }.map(drop)
    }
}

/// Wraps a descriptor that another process has opened for its memory, however it came here
/// (`pidfd_getfd`, a socket).
impl From<OwnedFd> for Userfault {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl From<Userfault> for OwnedFd {
    fn from(userfault: Userfault) -> Self {
        userfault.fd
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the features that this kernel offers to this user.
///
/// # Errors
/// As [`Userfault::open`], for both interfaces.
pub fn offered() -> io::Result<Features> {
    // SAFETY: nothing is registered.
    let open = |door| unsafe { Userfault::open(door, Flags::CLOEXEC) };
    let opened = open(Door::Call).or_else(|error| open(Door::Device).map_err(|_| error))?;
    opened.agree(Features::empty())
}

/// Checks whether this user may have these features by the system call; some of those that are
/// [`offered`] need further rights.
///
/// # Errors
/// As [`Userfault::open`] and [`Userfault::agree`].
pub fn permitted(features: Features) -> io::Result<()> {
    // SAFETY: nothing is registered.
    let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC) }?;
    opened.agree(features).map(drop)
}

fn span(range: &Range<u64>) -> raw::uffdio_range {
    raw::uffdio_range { start: range.start, len: range.end.saturating_sub(range.start) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::ioctl as known;

    #[test]
    fn requests_have_the_numbers_of_the_kernels_header() {
        let pairs = [
            (opcode::read_write::<raw::uffdio_api>(GROUP, 0x3f), known::UFFDIO_API),
            (opcode::read_write::<raw::uffdio_register>(GROUP, 0), known::UFFDIO_REGISTER),
            (opcode::read::<raw::uffdio_range>(GROUP, 1), known::UFFDIO_UNREGISTER),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs);
        }
    }
}
