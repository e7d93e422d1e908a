//! Memory that several processes share as atomic words: a memfd or a file, mapped `MAP_SHARED` and
//! never unmapped.
//!
//! Any process that has such memory may write anything to it at any time, so it is accessible as
//! atomics only. It stays mapped until the process ends, so that references to it can be kept in
//! statics and used in signal handlers.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, MlockFlags, ProtFlags};

/// Size of a word in bytes.
pub const WORD: usize = size_of::<AtomicU64>();

/// A file of words and its mapping into this process.
#[derive(Debug)]
pub struct Words {
    fd: OwnedFd,
    words: &'static [AtomicU64],
    locked: bool,
}

impl Words {
    /// Creates a memfd of `count` words of zero, which is closed on `exec`, and maps it as
    /// [`open`](Words::open) does.
    ///
    /// # Errors
    /// The errors of `memfd_create`, `ftruncate` and `mmap`; `EINVAL` if `count` is zero.
    pub fn new(name: &CStr, count: usize) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        let length = count.checked_mul(WORD).ok_or(io::ErrorKind::InvalidInput)?;
        rustix::fs::ftruncate(&fd, length as u64)?;
        Self::map(fd, count)
    }

    /// Maps a file of words, touches every page of it, and locks the pages in memory as far as the
    /// limit permits.
    ///
    /// # Errors
    /// The errors of `fstat` and `mmap`; `EINVAL` for an empty file. If the file is shrunk later,
    /// an access beyond its end raises `SIGBUS`; [`new`](Words::new) creates files that nobody has
    /// a reason to shrink.
    pub fn open(file: File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        Self::map(file.into(), length / WORD)
    }

    fn map(fd: OwnedFd, count: usize) -> io::Result<Self> {
        let length = count * WORD;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                &fd,
                0,
            )
        }?;
        // SAFETY: the range is the mapping just made. Locking changes no contents; `locked` records
        // a refusal (RLIMIT_MEMLOCK).
        let locked = unsafe { rustix::mm::mlock_with(base, length, MlockFlags::empty()) }.is_ok();
        // SAFETY: the mapping is page-aligned, `count` words long, readable and writable, and is
        // never unmapped. Other processes access their mappings of the file by atomics, or change
        // its bytes as if by those.
        let words = unsafe { std::slice::from_raw_parts(base.cast::<AtomicU64>(), count) };
        Ok(Self { fd, words, locked })
    }

    /// Returns the words.
    pub fn get(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Replaces the file's pages by private pages of zeros, so that this process keeps none of its
    /// memory. References to the words stay valid; what is done with them from here on is invisible
    /// to other processes.
    ///
    /// # Errors
    /// The errors of `mmap`; the words are still the file's then.
    pub fn withdraw(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping of this value, which stays mapped, readable and writable
        // throughout, since the kernel replaces it in one step. The words are atomics whose values
        // any process may change at any time, so nothing may rely on them.
        unsafe {
            rustix::mm::mmap_anonymous(
                self.words.as_ptr().cast_mut().cast(),
                size_of_val(self.words),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        }?;
        Ok(())
    }

    /// Returns whether the pages are locked in memory.
    pub fn locked(&self) -> bool {
        self.locked
    }
}

impl AsFd for Words {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_one_file_show_the_same_words() {
        let first = Words::new(c"refit-test", 1024).expect("a memfd can be made");
        let file = File::from(first.as_fd().try_clone_to_owned().expect("a descriptor can be had"));
        let second = Words::open(file).expect("it can be mapped again");
        assert_eq!(second.get().len(), 1024);
        first.get()[1000].store(7, Relaxed);
        assert_eq!(second.get()[1000].load(Relaxed), 7);
    }

    #[test]
    fn words_that_were_withdrawn_are_zeros_of_this_process_alone() {
        let first = Words::new(c"refit-test", 1024).expect("a memfd can be made");
        let file = File::from(first.as_fd().try_clone_to_owned().expect("a descriptor can be had"));
        let second = Words::open(file).expect("it can be mapped again");
        first.get()[5].store(7, Relaxed);
        let kept = &second.get()[5];
        second.withdraw().expect("it is mapped");
        assert_eq!(kept.load(Relaxed), 0);
        kept.store(9, Relaxed);
        assert_eq!((kept.load(Relaxed), first.get()[5].load(Relaxed)), (9, 7));
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(Words::new(c"refit-test", 0).is_err());
    }
}
