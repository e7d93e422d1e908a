//! Memory that several processes share as atomic words: a memfd or a file, mapped `MAP_SHARED` and never unmapped.
//!
//! Whoever has such memory may write anything to it at any time, so it is given out as atomics only. It stays mapped
//! until the process ends, so that references to it can be kept in statics and used in signal handlers.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, MlockFlags, ProtFlags};

/// Size of a word in bytes.
pub const WORD: usize = size_of::<AtomicU64>();

/// A file and its mapping into this process.
#[derive(Debug)]
pub struct Words {
    fd: OwnedFd,
    words: &'static [AtomicU64],
    locked: bool,
}

impl Words {
    /// Makes a memfd of `count` words of zero, closed on `exec`, and maps it as [`open`](Words::open) does.
    ///
    /// # Errors
    /// What `memfd_create`, `ftruncate` or `mmap` say; `EINVAL` for a count of zero.
    pub fn new(name: &CStr, count: usize) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        let length = count.checked_mul(WORD).ok_or(io::ErrorKind::InvalidInput)?;
        rustix::fs::ftruncate(&fd, length as u64)?;
        Self::map(fd, count)
    }

    /// Maps a file that holds words, touches every page of it, and locks them in memory as far as the limit permits.
    ///
    /// # Errors
    /// What `fstat` or `mmap` say; `EINVAL` for an empty file. A file that is made shorter later kills who touches
    /// what is gone (`SIGBUS`): [`new`](Words::new) gives files that nobody has a reason to cut.
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
        // SAFETY: the range is the mapping just made. Locking changes no contents; a refusal (RLIMIT_MEMLOCK) is told
        // by `locked`.
        let locked = unsafe { rustix::mm::mlock_with(base, length, MlockFlags::empty()) }.is_ok();
        // SAFETY: the mapping is page-aligned, `count` words long, readable and writable, and is never unmapped; other
        // mappings of the file are accessed by other processes' atomics, or their bytes change as if by those.
        let words = unsafe { std::slice::from_raw_parts(base.cast::<AtomicU64>(), count) };
        Ok(Self { fd, words, locked })
    }

    /// The words.
    pub fn get(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Puts private pages of zeros in the place of the file's, so that this process keeps none of its memory. References to the words stay good; what
    /// they are used for from here on is seen by nobody else.
    ///
    /// # Errors
    /// What `mmap` says; the words are the file's still then.
    pub fn withdraw(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping of this value, which stays mapped, readable and writable throughout: the kernel replaces it in one step. The
        // words are atomics whose values anybody may change at any time, so that none of them may be relied on.
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

    /// Whether the pages are locked in memory.
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
