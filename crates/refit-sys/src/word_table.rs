//! A table of atomic words in a memfd: memory whose contents outlive the process that writes them,
//! for another process that has the memfd.
//!
//! A page takes memory only once it is written. Unlike [`crate::words`], the mapping ends with the
//! value.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags};

use crate::memfd::{self, Pages, Seals};
use crate::words::WORD;

/// A memfd of words, and its mapping into this process.
#[derive(Debug)]
pub struct WordTable {
    fd: OwnedFd,
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: `words` points at a mapping that belongs to this value alone and lives as long as it. A
// mapping is not tied to a thread, and its contents are atomics.
unsafe impl Send for WordTable {}
// SAFETY: as for `Send`; shared references give access to the atomics only.
unsafe impl Sync for WordTable {}

impl WordTable {
    /// Creates a memfd of `count` words of zero, which is closed on `exec` and cannot be shrunk,
    /// and maps it. `/proc/PID/maps` shows `name`.
    ///
    /// # Errors
    /// The errors of `memfd_create`, `ftruncate` and `mmap`; `EINVAL` if `count` is zero.
    pub fn new(name: &CStr, count: usize) -> io::Result<Self> {
        let length = count.checked_mul(WORD).ok_or(io::ErrorKind::InvalidInput)?;
        let fd = memfd::create(name, length as u64, Pages::Base)?;
        memfd::seal(&fd, Seals::SHRINK)?;
        Self::map(fd, count)
    }

    /// Maps a memfd that [`new`](Self::new) created, here or in another process.
    ///
    /// # Errors
    /// The errors of `fstat` and `mmap`; `EINVAL`: it is no such memfd.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        // A file that can be shrunk could make any access raise SIGBUS.
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(Seals::SHRINK) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = rustix::fs::fstat(&fd)?.st_size;
        Self::map(fd, usize::try_from(length).unwrap_or(0) / WORD)
    }

    fn map(fd: OwnedFd, count: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                count * WORD,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }?;
        let words = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { fd, words, count })
    }

    /// Returns the words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `count` words long, readable and writable, and lives
        // as long as `self`. The memfd cannot be shrunk. Other processes access their mappings of
        // it by atomics, or change its bytes as if by those.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl AsFd for WordTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for WordTable {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference to its words is left.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.count * WORD) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn the_words_outlive_the_table_that_wrote_them() {
        let table = WordTable::new(c"refit-test", 100_000).unwrap();
        table.words()[99_999].store(7, Relaxed);
        let fd = table.as_fd().try_clone_to_owned().unwrap();
        drop(table);
        let table = WordTable::open(fd).unwrap();
        assert_eq!((table.words().len(), table.words()[99_999].load(Relaxed)), (100_000, 7));
    }

    #[test]
    fn a_file_that_can_be_shrunk_is_refused() {
        let fd = memfd::create(c"refit-test", 4096, Pages::Base).unwrap();
        assert!(WordTable::open(fd).is_err());
        assert!(WordTable::new(c"refit-test", 0).is_err());
    }
}
