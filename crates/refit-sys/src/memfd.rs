//! Files that are memory, with no name anywhere: memfd_create(2), and what can be taken back of them: fallocate(2).
//!
//! A hole that is punched reads as zeros, and everybody's mappings of it lose their pages: the next touch is a fault. Files in
//! memory cannot be collapsed, that is cut in the middle (`FALLOC_FL_COLLAPSE_RANGE` is `EOPNOTSUPP`); their pages can be
//! gathered into huge ones ([`crate::pidfd::Advice::Collapse`]).

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags};

/// What nobody may do to a memfd any more (fcntl(2), file sealing).
pub use rustix::fs::SealFlags as Seals;

/// The pages that a memfd is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Those of the machine, huge ones among them if it is set so (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
    #[default]
    Base,
    /// Huge ones of 2 MiB, from the pool that the administrator has set aside (`vm.nr_hugepages`).
    Huge2M,
    /// Huge ones of 1 GiB.
    Huge1G,
}

/// Makes a memfd of `length` bytes of zeros, closed on `exec`, which can be sealed. `name` shows in `/proc/PID/maps`.
///
/// # Errors
/// `EINVAL`: a name of more than 249 bytes, or a length that is no multiple of huge pages. `ENOENT`, `ENODEV`: no such huge
/// pages on this machine. `EMFILE`, `ENFILE`, `ENOMEM`.
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

/// Forbids for good what the seals say: to make it longer or shorter, to write to it, to seal it further.
///
/// # Errors
/// `EPERM`: that is sealed. `EBUSY`: it is mapped to be written, and `WRITE` forbids that. `EINVAL`: no such file.
pub fn seal(fd: impl AsFd, seals: Seals) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(fd, seals)?)
}

/// Gives the memory, or the disk space, of a range of a file back; it reads as zeros. The file stays as long as it is.
///
/// # Errors
/// `EOPNOTSUPP`: its file system cannot. `EPERM`: sealed against writing. `ENOSPC`, `EIO`: of the disk. `EINVAL`: empty.
pub fn punch(fd: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let length = range.end.saturating_sub(range.start);
    Ok(rustix::fs::fallocate(fd, how, range.start, length)?)
}
