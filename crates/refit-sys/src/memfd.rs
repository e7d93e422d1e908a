//! Anonymous files in memory: memfd_create(2); and giving back ranges of files: fallocate(2).
//!
//! A punched hole reads as zeros, and all mappings of the file lose its pages there: the next
//! access faults. Files in memory cannot be collapsed, that is, cut in the middle
//! (`FALLOC_FL_COLLAPSE_RANGE` fails with `EOPNOTSUPP`), but their pages can be gathered into huge
//! ones ([`collapse`], and [`crate::pidfd::Advice::Collapse`] for those of a process).

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};

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

/// Size in bytes of a transparent huge page.
pub const HUGE_PAGE: u64 = 2 << 20;

/// Gathers the pages of a range of a memfd into huge ones, also where the host has these for
/// nothing that does not ask (`MADV_COLLAPSE`, Linux 6.1). Mappings in all processes have their
/// pages replaced by huge ones at their next access, where address and offset permit it. What
/// was a hole takes memory then. The range is extended to whole huge pages.
///
/// # Errors
/// `EINVAL`: the kernel has no such pages, or no such call. `EAGAIN`, `ENOMEM`, `EBUSY`: there are
/// no free ones, or some page is in use. A part may be gathered then.
pub fn collapse(fd: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let begin = range.start / HUGE_PAGE * HUGE_PAGE;
    let length = (range.end.next_multiple_of(HUGE_PAGE) - begin) as usize;
    let reserved = length + HUGE_PAGE as usize;
    let (access, how) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
    let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, access, how) }?;
    let aligned = base.map_addr(|address| address.next_multiple_of(HUGE_PAGE as usize));
    let how = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: the range is within the mapping just made, which nothing else knows of.
    let mapped = unsafe { rustix::mm::mmap(aligned, length, ProtFlags::READ, how, fd, begin) };
    let collapsed = mapped.map_err(io::Error::from).and_then(|at| {
        // SAFETY: the range is the mapping just made. Its contents do not change.
        match unsafe { libc::madvise(at, length, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    // SAFETY: the range is that of the first mapping, of which nothing refers to any part.
    unsafe { rustix::mm::munmap(base, reserved) }?;
    collapsed
}
