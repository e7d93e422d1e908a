//! A memfd that is mapped `MAP_SHARED`, and copied to and from by offset.
//!
//! ## Rules
//!
//! 1. No reference into the mapping ever exists. Bytes enter and leave by raw copies only, so that
//!    the compiler never assumes anything about memory that another mapping of the same memfd, in
//!    this process or in another, can change. The words of [`crate::ring`] are the one exception:
//!    they are atomic, and nothing is copied from or to their addresses.
//! 2. Every copy is checked against the length of the mapping. A copy that does not fit panics,
//!    because its offset is computed from an index that the caller owns, never from outside input.
//! 3. Two copies that overlap in the mapping and in time, at least one of them inwards, leave a
//!    mixture of the bytes of both. They break nothing else here, but callers that need consistent
//!    data have to exclude them (refit's page caches touch a frame only under the lock of the page,
//!    or while the page is marked busy by the same thread).

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use crate::memfd::{self, Pages};

/// Size of a page in bytes: the base page size of every machine that refit supports.
pub const PAGE_SIZE: usize = 4096;
/// [`PAGE_SIZE`] as a `u64`, for addresses and file offsets.
pub const PAGE_SIZE_U64: u64 = PAGE_SIZE as u64;

/// A memfd and its mapping into this process. A page takes host memory only once it is written.
#[derive(Debug)]
pub struct SharedMapping {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: `base` points at a mapping that belongs to this value alone and lives as long as it. A
// mapping is not tied to a thread, and all access goes through bounds-checked raw copies (rules 1
// and 2).
unsafe impl Send for SharedMapping {}
// SAFETY: as for `Send`; the methods that take `&self` never form a reference into the mapping, and
// their callers exclude overlapping copies (rule 3).
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Creates a memfd of `len` bytes of zeros, which is closed on `exec`, and maps it.
    /// `/proc/PID/maps` shows `name`.
    ///
    /// # Errors
    /// The errors of `memfd_create`, `ftruncate` and `mmap`; `EINVAL` if `len` is zero.
    pub fn new(name: &CStr, len: usize) -> io::Result<Self> {
        Self::of(memfd::create(name, len as u64, Pages::Base)?, len)
    }

    /// Maps the first `len` bytes of a memfd, which must be that long and stay so.
    pub(crate) fn of(fd: OwnedFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { fd, base, len })
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies the bytes at `offset` into `buf`.
    ///
    /// # Panics
    /// When `offset + buf.len()` lies beyond the mapping.
    pub fn read_at(&self, offset: usize, buf: &mut [u8]) {
        let from = self.place(offset, buf.len());
        // SAFETY: `place` checked that the source lies in the mapping; `buf` is a Rust slice and so
        // cannot overlap a mapping into which no reference exists (rule 1).
        unsafe { std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len()) }
    }

    /// Copies `data` to `offset`.
    ///
    /// # Panics
    /// When `offset + data.len()` lies beyond the mapping.
    pub fn write_at(&self, offset: usize, data: &[u8]) {
        let to = self.place(offset, data.len());
        // SAFETY: as in `read_at`, in the other direction; the mapping is writable.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
    }

    /// Fills `range` with zeros.
    ///
    /// # Panics
    /// When `range` lies beyond the mapping.
    pub fn zero(&self, range: Range<usize>) {
        let to = self.place(range.start, range.len());
        // SAFETY: `place` checked that the range lies in the mapping, which is writable.
        unsafe { std::ptr::write_bytes(to, 0, range.len()) }
    }

    /// Gives the memory of `range` back to the host; the range reads as zeros afterwards. Only
    /// whole pages are given back, the rest of the range is just zeroed.
    ///
    /// # Errors
    /// The errors of `fallocate`; the bytes are unchanged then.
    pub fn give_back(&self, range: Range<usize>) -> io::Result<()> {
        self.place(range.start, range.len());
        if range.is_empty() {
            return Ok(());
        }
        memfd::punch(&self.fd, range.start as u64..range.end as u64)
    }

    /// Returns, for each page of `range` in order, whether it is in memory, no matter which process
    /// has accessed it last: mincore(2). Accessing one of the others allocates it or reads it from
    /// swap.
    ///
    /// # Errors
    /// `EINVAL`: `range` begins within a page. `EAGAIN`: the kernel is short of memory.
    ///
    /// # Panics
    /// When `range` lies beyond the mapping.
    pub fn in_core(&self, range: Range<usize>) -> io::Result<Vec<bool>> {
        let from = self.place(range.start, range.len());
        let mut residency = vec![0_u8; range.len().div_ceil(rustix::param::page_size())];
        // SAFETY: the range lies in the mapping, and `told` has a byte for each of its pages.
        match unsafe { libc::mincore(from.cast(), range.len(), residency.as_mut_ptr()) } {
            0 => Ok(residency.into_iter().map(|byte| byte & 1 != 0).collect()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the bytes of host memory that the memfd takes now.
    ///
    /// # Errors
    /// The errors of `fstat`.
    pub fn resident(&self) -> io::Result<u64> {
        let blocks = rustix::fs::fstat(&self.fd)?.st_blocks;
        Ok(u64::try_from(blocks).unwrap_or(0) * 512)
    }

    pub(crate) fn place(&self, offset: usize, len: usize) -> *mut u8 {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {offset} lie beyond a mapping of {} bytes", self.len);
        // SAFETY: `offset` is at most the length of the mapping, which is one allocation.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl AsFd for SharedMapping {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and nothing points into it (rule 1). Unmapping
        // what `mmap` returned cannot fail, and `drop` could not report it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &CStr = c"refit-test";

    #[test]
    fn what_goes_in_comes_out_and_the_rest_is_zero() {
        let map = SharedMapping::new(NAME, 3 * 4096).unwrap();
        map.write_at(4090, b"across a page boundary");
        let mut buf = [0xff; 40];
        map.read_at(4085, &mut buf);
        assert_eq!(&buf[..5], &[0; 5]);
        assert_eq!(&buf[5..27], b"across a page boundary");
        assert_eq!(&buf[27..], &[0; 13]);
        map.zero(4091..4093);
        map.read_at(4090, &mut buf[..4]);
        assert_eq!(&buf[..4], b"a\0\0o");
    }

    #[test]
    fn memory_is_taken_when_touched_and_can_be_given_back() {
        let map = SharedMapping::new(NAME, 64 << 20).unwrap();
        assert_eq!(map.resident().unwrap(), 0);
        map.write_at(1 << 20, &[7; 8192]);
        assert_eq!(map.resident().unwrap(), 8192);
        assert_eq!(map.in_core((1 << 20) - 4096..(1 << 20) + 8192).unwrap(), [false, true, true]);
        map.give_back(1 << 20..(1 << 20) + 8192).unwrap();
        assert_eq!(map.resident().unwrap(), 0);
        let mut buf = [1; 16];
        map.read_at(1 << 20, &mut buf);
        assert_eq!(buf, [0; 16]);
    }

    #[test]
    fn the_last_byte_can_be_reached_and_no_more() {
        let map = SharedMapping::new(NAME, 4096).unwrap();
        map.write_at(4095, &[1]);
        map.write_at(4096, &[]);
        for (offset, len) in [(4096, 1), (4095, 2), (usize::MAX, 1), (0, 4097)] {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                map.read_at(offset, &mut vec![0; len]);
            }));
            assert!(caught.is_err(), "{len} bytes at {offset}");
        }
    }

    #[test]
    fn a_length_of_zero_is_refused() {
        assert!(SharedMapping::new(NAME, 0).is_err());
    }
}
