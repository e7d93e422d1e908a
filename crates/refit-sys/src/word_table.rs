//! A table of atomic words in a memfd: memory whose contents outlive the process that writes them,
//! for another process that has the memfd.
//!
//! A page takes memory only once it is written. Unlike [`crate::words`], the mapping ends with the
//! value.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use crate::memfd::{self, Pages, Seals};
use crate::memory::SharedMapping;
use crate::words::WORD;

/// A memfd of words, and its mapping into this process.
#[derive(Debug)]
pub struct WordTable {
    memory: SharedMapping,
}

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
        Ok(Self { memory: SharedMapping::of(fd, length)? })
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
        let length = usize::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        Ok(Self { memory: SharedMapping::of(fd, length)? })
    }

    /// Returns the words.
    pub fn words(&self) -> &[AtomicU64] {
        let (length, whole) = (self.memory.len(), self.memory.place(0, self.memory.len()));
        // SAFETY: the mapping is page-aligned, `length` bytes long, readable and writable, and
        // lives as long as `self`. Only this method gives access to it. The memfd cannot be shrunk.
        // Other processes access their mappings of it by atomics, or change its bytes as if by
        // those.
        unsafe { std::slice::from_raw_parts(whole.cast::<AtomicU64>(), length / WORD) }
    }
}

impl AsFd for WordTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
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
