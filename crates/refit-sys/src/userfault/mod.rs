//! Page faults served by user space: userfaultfd(2), ioctl_userfaultfd(2).
//!
//! Who has a [`Userfault`] of a process says which addresses it serves ([`register`](Userfault::register)). A thread that
//! touches such a page, where none is, or writes to one that is write-protected, waits until the page is there. Meanwhile
//! the server reads what happened ([`read`](Userfault::read)), and resolves it, by address and length:
//!
//! | fault | what was registered | what resolves it |
//! |---|---|---|
//! | missing: no page | [`Modes::MISSING`] | [`copy`](Userfault::copy), [`zero`](Userfault::zero), [`poison`](Userfault::poison), [`move_pages`](Userfault::move_pages) |
//! | minor: the page is in its file, not in the table of pages | [`Modes::MINOR`] | [`continue_minor`](Userfault::continue_minor), [`poison`](Userfault::poison) |
//! | a write to a protected page | [`Modes::WRITE_PROTECT`] | [`unprotect`](Userfault::unprotect) |
//!
//! Addresses and lengths are bytes, in the served process, and multiples of its page size.
//!
//! A thread can also wait inside of a system call that touches its memory; while it does, `PTRACE_INTERRUPT` does not stop
//! it. [`USER_MODE_ONLY`] excludes that: the system call says `EFAULT` instead.
//!
//! What can be registered depends on the mapping (measured on 6.18): anonymous private memory MISSING and
//! WRITE_PROTECT; memfds, shared or private, all three; other files WRITE_PROTECT with [`Features::WP_ASYNC`] only.
//!
//! By kernel: MISSING, COPY, ZEROPAGE, WAKE 4.3; events 4.11; WRITE_PROTECT 5.7; USER_MODE_ONLY 5.11; MINOR, CONTINUE
//! 5.13; `/dev/userfaultfd` 6.1; WP_UNPOPULATED 6.4; POISON 6.6; WP_ASYNC 6.7; MOVE 6.8.

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
/// How a [`Userfault`] is opened: `CLOEXEC`, `NONBLOCK` (without which it cannot be polled), [`USER_MODE_ONLY`].
pub use rustix::mm::UserfaultfdFlags as Flags;

/// Faults in system calls are not served, but fail; any user may open such a one (5.11).
pub const USER_MODE_ONLY: Flags = Flags::from_bits_retain(1);

/// The letter of its requests.
const GROUP: u8 = 0xaa;

bitflags! {
    /// What is asked of the kernel, and what it offers (`UFFD_FEATURE_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Features: u64 {
        /// Messages say whether a fault was one of write protection.
        const PAGEFAULT_FLAG_WP = raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
        /// `fork` is told, and the child's memory is served by a descriptor of its own.
        const EVENT_FORK = raw::UFFD_FEATURE_EVENT_FORK as u64;
        /// `mremap` is told.
        const EVENT_REMAP = raw::UFFD_FEATURE_EVENT_REMAP as u64;
        /// `madvise` with `MADV_REMOVE` or `MADV_DONTNEED` is told.
        const EVENT_REMOVE = raw::UFFD_FEATURE_EVENT_REMOVE as u64;
        /// Huge pages can be missing.
        const MISSING_HUGETLBFS = raw::UFFD_FEATURE_MISSING_HUGETLBFS as u64;
        /// Pages of shared memory can be missing.
        const MISSING_SHMEM = raw::UFFD_FEATURE_MISSING_SHMEM as u64;
        /// `munmap` is told.
        const EVENT_UNMAP = raw::UFFD_FEATURE_EVENT_UNMAP as u64;
        /// Nobody is told of faults: who faults gets `SIGBUS`.
        const SIGBUS = raw::UFFD_FEATURE_SIGBUS as u64;
        /// Messages say which thread faults.
        const THREAD_ID = raw::UFFD_FEATURE_THREAD_ID as u64;
        /// Minor faults on huge pages.
        const MINOR_HUGETLBFS = raw::UFFD_FEATURE_MINOR_HUGETLBFS as u64;
        /// Minor faults on shared memory.
        const MINOR_SHMEM = raw::UFFD_FEATURE_MINOR_SHMEM as u64;
        /// Messages give the address that was touched, not that of its page.
        const EXACT_ADDRESS = raw::UFFD_FEATURE_EXACT_ADDRESS as u64;
        /// Write protection of shared memory and huge pages.
        const WP_HUGETLBFS_SHMEM = raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64;
        /// Pages that are not there yet can be write-protected.
        const WP_UNPOPULATED = raw::UFFD_FEATURE_WP_UNPOPULATED as u64;
        /// Pages can be made to kill who touches them.
        const POISON = raw::UFFD_FEATURE_POISON as u64;
        /// The kernel lifts write protection by itself; `PAGEMAP_SCAN` tells what was written.
        const WP_ASYNC = raw::UFFD_FEATURE_WP_ASYNC as u64;
        /// Pages can be moved without a copy.
        const MOVE = raw::UFFD_FEATURE_MOVE as u64;
        /// What later kernels offer.
        const _ = !0;
    }

    /// Which faults of a range are told (`UFFDIO_REGISTER_MODE_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Modes: u64 {
        /// Of pages that are not there.
        const MISSING = raw::UFFDIO_REGISTER_MODE_MISSING as u64;
        /// Of writes to pages that are write-protected.
        const WRITE_PROTECT = raw::UFFDIO_REGISTER_MODE_WP as u64;
        /// Of pages that are in their file, but not in the table of pages.
        const MINOR = raw::UFFDIO_REGISTER_MODE_MINOR as u64;
    }

    /// What can be done to a registered range.
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
        /// What later kernels offer.
        const _ = !0;
    }
}

/// Where a [`Userfault`] comes from: the same thing by different permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The system call: `CAP_SYS_PTRACE`, or `vm.unprivileged_userfaultfd` = 1, or [`USER_MODE_ONLY`].
    Call,
    /// `/dev/userfaultfd` (6.1): who may open the file.
    Device,
}

/// Serves page faults of the process that has opened it.
#[derive(Debug)]
pub struct Userfault {
    fd: OwnedFd,
}

impl Userfault {
    /// Opens one for the memory of this process. [`agree`](Self::agree) comes next.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`: not for this user. `ENOSYS`, `ENOENT`: the kernel, or a sandbox, has none. `EINVAL`: flags.
    ///
    /// # Safety
    /// What is registered is memory that nothing in this process holds a reference to, or counts on the contents of: it is
    /// changed by whoever resolves its faults.
    pub unsafe fn open(door: Door, flags: Flags) -> io::Result<Self> {
        let fd = match door {
            // SAFETY: the caller's duty is that of this function.
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
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Agrees with the kernel on version and features, once; what it offers in all. Without features asked, none is on.
    ///
    /// # Errors
    /// `EINVAL`: it lacks one of them, or has been agreed with before. `EPERM`: [`Features::EVENT_FORK`] without
    /// `CAP_SYS_PTRACE`.
    pub fn agree(&self, asked: Features) -> io::Result<Features> {
        let mut api =
            raw::uffdio_api { api: u64::from(raw::UFFD_API), features: asked.bits(), ioctls: 0 };
        // SAFETY: the structure is that of the request, which touches nothing else.
        unsafe { self.ask(opcode::read_write::<raw::uffdio_api>(GROUP, 0x3f), &mut api) }?;
        Ok(Features::from_bits_retain(api.features))
    }

    /// Serves the faults of a range that is mapped, and not served by another one; what can be done there.
    ///
    /// # Errors
    /// `EINVAL`: not mapped, not whole pages, or no memory of which such faults can be served. `EBUSY`: another
    /// serves it. `EPERM`: a file that the process may not write. `ESRCH`, `ENOMEM`: the process has ended.
    pub fn register(&self, range: Range<u64>, modes: Modes) -> io::Result<Requests> {
        let mut register =
            raw::uffdio_register { range: span(&range), mode: modes.bits(), ioctls: 0 };
        // SAFETY: the structure is that of the request. What it does to memory of this process is what `open` asks for.
        unsafe { self.ask(opcode::read_write::<raw::uffdio_register>(GROUP, 0), &mut register) }?;
        Ok(Requests::from_bits_retain(register.ioctls))
    }

    /// Serves the faults of a range no more; threads that wait there go on, and fault as elsewhere.
    ///
    /// # Errors
    /// `EINVAL`: not mapped, or not whole pages. `ENOMEM`: the process has ended.
    pub fn unregister(&self, range: Range<u64>) -> io::Result<()> {
        // SAFETY: the structure is that of the request; the memory is ordinary again.
        unsafe { self.ask(opcode::read::<raw::uffdio_range>(GROUP, 1), &mut span(&range)) }
    }

    /// Messages that can be read at once.
    pub const AT_ONCE: usize = 32;

    /// Adds what has happened to `into`, as many messages as are there, up to [`AT_ONCE`](Self::AT_ONCE); how many. None is there:
    /// waits, or returns 0 if it was opened with `NONBLOCK`.
    ///
    /// Who forks, unmaps, removes or remaps memory waits until its message is read; until then resolving says
    /// [`Cause::Again`].
    ///
    /// # Errors
    /// `EINVAL`: not agreed yet. `EINTR`: a signal came. `EMFILE`: no descriptor is left for the memory of a child.
    pub fn read(&self, into: &mut Vec<Message>) -> io::Result<usize> {
        self.read_some(into, Self::AT_ONCE)
    }

    /// As [`read`](Self::read), no more than `most`, at least one.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_some(&self, into: &mut Vec<Message>, most: usize) -> io::Result<usize> {
        message::read(self.fd.as_fd(), into, most.clamp(1, Self::AT_ONCE))
    }

    /// Makes a request.
    ///
    /// # Safety
    /// As [`crate::ioctl::ask`].
    unsafe fn ask<T>(&self, request: rustix::ioctl::Opcode, argument: &mut T) -> io::Result<()> {
        // SAFETY: the caller's duty.
        unsafe { crate::ioctl::ask(self.fd.as_fd(), request, argument) }.map(drop)
    }
}

/// One that another process has opened for its memory, by whichever way it came here (`pidfd_getfd`, a socket).
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

/// What this kernel offers to this user.
///
/// # Errors
/// As [`Userfault::open`], for both doors.
pub fn offered() -> io::Result<Features> {
    // SAFETY: nothing is registered.
    let open = |door| unsafe { Userfault::open(door, Flags::CLOEXEC) };
    let opened = open(Door::Call).or_else(|error| open(Door::Device).map_err(|_| error))?;
    opened.agree(Features::empty())
}

/// Tries whether this user may have these features by the system call: some of those that are [`offered`] need rights besides.
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
