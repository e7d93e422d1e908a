//! Anonymous files in memory: memfd_create(2); and giving back ranges of files: fallocate(2).
//!
//! A punched hole reads as zeros, and all mappings of the file lose its pages there: the next
//! access faults. Files in memory cannot be collapsed, that is, cut in the middle
//! (`FALLOC_FL_COLLAPSE_RANGE` fails with `EOPNOTSUPP`), but their pages can be gathered into huge
//! ones ([`crate::pidfd::Advice::Collapse`]).

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags};

/// The operations that a seal forbids for good (fcntl(2), file sealing).
pub use rustix::fs::SealFlags as Seals;

/// The size of the pages that back a memfd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The machine's base pages, and transparent huge ones if the host enables them
    /// (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
    #[default]
    Base,
    /// Huge pages of 2 MiB, from the pool that the administrator has reserved (`vm.nr_hugepages`).
    Huge2M,
    /// Huge pages of 1 GiB.
    Huge1G,
}

/// Creates a memfd of `length` bytes of zeros, which is closed on `exec` and can be sealed.
/// `/proc/PID/maps` shows `name`.
///
/// # Errors
/// `EINVAL`: the name is longer than 249 bytes, or the length is not a multiple of the huge page
/// size. `ENOENT`, `ENODEV`: this machine has no such huge pages. `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn create(name: &CStr, length: u64, pages: Pages) -> io::Result<OwnedFd> {
    let huge = match pages {
        Pages::Base => MemfdFlags::empty(),
        Pages::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        Pages::Huge1G => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    };
    let how = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge;
    let fd = rustix::fs::memfd_create(name, how)?;
    rustix::fs::ftruncate(&fd, length)?;
    Ok(fd)
}

/// Forbids for good the operations of `seals`: growing, shrinking, writing, further sealing.
///
/// # Errors
/// `EPERM`: it is sealed against further seals. `EBUSY`: `WRITE` was asked for, and a writable
/// mapping exists. `EINVAL`: the file cannot be sealed.
pub fn seal(fd: impl AsFd, seals: Seals) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(fd, seals)?)
}

/// Gives back the memory, or the disk space, of a range of a file, which reads as zeros afterwards.
/// The length of the file stays the same.
///
/// # Errors
/// `EOPNOTSUPP`: the file system does not support it. `EPERM`: the file is sealed against writing.
/// `ENOSPC`, `EIO`: errors of the disk. `EINVAL`: the range is empty.
pub fn punch(fd: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let length = range.end.saturating_sub(range.start);
    Ok(rustix::fs::fallocate(fd, how, range.start, length)?)
}
