//! Memory that several processes share as atomic words: a memfd or a file, mapped `MAP_SHARED`.
//!
//! Any process that has such memory may write anything to it at any time, so it is accessible as
//! atomics only. [`Words`] stay mapped until the process ends, so that references to them can be
//! kept in statics and used in signal handlers; a [`Window`] is unmapped when it is dropped.

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

/// A file of words that is mapped for a while, without touching its pages.
#[derive(Debug)]
pub struct Window {
    words: &'static [AtomicU64],
}

impl Window {
    /// Maps a whole file.
    ///
    /// # Errors
    /// The errors of `fstat` and `mmap`; `EINVAL` for an empty file. If the file is shrunk later,
    /// an access beyond its end raises `SIGBUS`.
    pub fn open(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, file, 0)
        }?;
        // SAFETY: the mapping is page-aligned, has at least as many words, is readable and
        // writable, and stays until this value is dropped, which no reference outlives. Other
        // processes access their mappings of the file by atomics, or change its bytes as if by
        // those.
        let words = unsafe { std::slice::from_raw_parts(base.cast(), length / WORD) };
        Ok(Self { words })
    }

    /// Returns the words.
    pub fn get(&self) -> &[AtomicU64] {
        self.words
    }

    /// Exchanges two words, the first of which has an even index, as a whole, if they are as
    /// expected.
    ///
    /// # Errors
    /// The words that are there instead; zeros if the file has no such pair, or the processor no
    /// such instruction.
    pub fn exchange_pair(
        &self,
        first: usize,
        expected: [u64; 2],
        new: [u64; 2],
    ) -> Result<(), [u64; 2]> {
        let pair = self.words.get(first..).and_then(|words| words.get(..2));
        let pair = pair.filter(|_| first.is_multiple_of(2));
        let (Some(pair), true) = (pair, is_x86_feature_detected!("cmpxchg16b")) else {
            return Err([0; 2]);
        };
        let whole = |[low, high]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
        let (expected, place) = (whole(expected), pair.as_ptr().cast_mut().cast::<u128>());
        // SAFETY: the processor has the instruction. The two words are in the mapping, writable,
        // and aligned to 16 bytes, since the mapping is to pages and the index is even; they are
        // atomics, which all processes change by atomic instructions only.
        let found = unsafe { exchange_16(place, expected, whole(new)) };
        if found == expected { Ok(()) } else { Err([found as u64, (found >> 64) as u64]) }
    }
}

/// Exchanges 16 bytes as a whole if they are as expected; returns those that were there.
///
/// # Safety
/// The place is aligned, and can be written. The compiler has no such atomic, and calls a function
/// of a library in place of the intrinsic.
unsafe fn exchange_16(place: *mut u128, expected: u128, new: u128) -> u128 {
    let (mut low, mut high) = (expected as u64, (expected >> 64) as u64);
    // SAFETY: the caller's. `rbx`, which the compiler may need, is as before at the end.
    unsafe {
        std::arch::asm!(
            "xchg rbx, rsi",
            "lock cmpxchg16b xmmword ptr [rdi]",
            "mov rbx, rsi",
            in("rdi") place,
            inout("rsi") new as u64 => _,
            inout("rax") low,
            inout("rdx") high,
            in("rcx") (new >> 64) as u64,
        );
    }
    u128::from(high) << 64 | u128::from(low)
}

impl Drop for Window {
    fn drop(&mut self) {
        let base = self.words.as_ptr().cast_mut().cast();
        // SAFETY: the range is the mapping of this value, to which no reference is left. A refusal
        // leaves it mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(base, size_of_val(self.words)) };
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
    fn pairs_are_exchanged_as_a_whole_by_several_threads() {
        let words = Words::new(c"refit-test", 16).expect("a memfd can be made");
        let file = File::from(words.as_fd().try_clone_to_owned().expect("a descriptor can be had"));
        let window = Window::open(&file).expect("it can be mapped again");
        assert_eq!(window.exchange_pair(3, [0; 2], [1; 2]), Err([0; 2]));
        assert_eq!(window.exchange_pair(16, [0; 2], [1; 2]), Err([0; 2]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut now = [0; 2];
                        while let Err(there) =
                            window.exchange_pair(2, now, [now[0] + 1, now[1].wrapping_sub(1)])
                        {
                            assert_eq!(there[0], there[1].wrapping_neg());
                            now = there;
                        }
                    }
                });
            }
        });
        assert_eq!(words.get()[2].load(Relaxed), 40_000);
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(Words::new(c"refit-test", 0).is_err());
        let empty = rustix::fs::memfd_create(c"refit-test", MemfdFlags::CLOEXEC);
        assert!(Window::open(&File::from(empty.expect("a memfd can be made"))).is_err());
    }
}
