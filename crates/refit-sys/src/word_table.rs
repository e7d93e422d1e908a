//! A table of atomic words in a memfd: memory whose contents outlive the process that writes them,
//! for another process that has the memfd.
//!
//! A page takes memory only once it is written. Unlike [`crate::words`], the mapping ends with the
//! value.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

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

/// Reads as many bytes as `bytes` has room for from words in which [`write_bytes`] has put them.
///
/// # Panics
/// There are not as many.
pub fn read_bytes(words: &[AtomicU64], bytes: &mut [u8]) {
    let words = &words[..bytes.len().div_ceil(WORD)];
    for (word, chunk) in words.iter().zip(bytes.chunks_mut(WORD)) {
        // Relaxed: the caller orders this after the writes.
        chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..chunk.len()]);
    }
}

/// Writes bytes into words, in order. The rest of the last word becomes zero.
///
/// # Panics
/// The bytes do not fit.
pub fn write_bytes(words: &[AtomicU64], bytes: &[u8]) {
    let words = &words[..bytes.len().div_ceil(WORD)];
    for (word, chunk) in words.iter().zip(bytes.chunks(WORD)) {
        let mut whole = [0; WORD];
        whole[..chunk.len()].copy_from_slice(chunk);
        // Relaxed: the caller publishes the bytes by another word.
        word.store(u64::from_le_bytes(whole), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_were_written() {
        let table = WordTable::new(c"refit-test", 4).unwrap();
        for length in 0..=32 {
            let written: Vec<u8> = (1..=length).collect();
            write_bytes(table.words(), &written);
            let mut read = vec![0; written.len()];
            read_bytes(table.words(), &mut read);
            assert_eq!(read, written);
        }
    }

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
