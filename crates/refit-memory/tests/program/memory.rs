//! Memory of this process that the tests serve, and the threads that access it.

use std::io;
use std::ops::Range;
use std::thread::JoinHandle;

use crate::common::{PAGE_SIZE_U64, until};

/// Memory of this process to which nobody holds a reference.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) start: u64,
    length: u64,
}

impl Memory {
    pub(crate) fn new(pages: u64) -> Self {
        let length = pages * PAGE_SIZE_U64;
        let allowed = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe { libc::mmap(none, length as usize, allowed, how, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        // SAFETY: advice changes no contents.
        unsafe { libc::madvise(base, length as usize, libc::MADV_NOHUGEPAGE) };
        Self { start: base as u64, length }
    }

    pub(crate) fn part(self, pages: Range<u64>) -> Range<u64> {
        assert!(pages.end * PAGE_SIZE_U64 <= self.length);
        self.start + pages.start * PAGE_SIZE_U64..self.start + pages.end * PAGE_SIZE_U64
    }

    pub(crate) fn all(self) -> Range<u64> {
        self.start..self.start + self.length
    }

    pub(crate) fn at(self, page: u64) -> *mut u64 {
        assert!(page * PAGE_SIZE_U64 < self.length);
        (self.start + page * PAGE_SIZE_U64) as *mut u64
    }

    pub(crate) fn get(self, page: u64) -> u64 {
        // SAFETY: the address is in a page that only `Memory` accesses; the tests do not touch
        // pages that they have unmapped.
        unsafe { self.at(page).read_volatile() }
    }

    pub(crate) fn set(self, page: u64, value: u64) {
        // SAFETY: as above.
        unsafe { self.at(page).write_volatile(value) }
    }

    pub(crate) fn advise(self, pages: Range<u64>, what: i32) {
        let length = (pages.end - pages.start) * PAGE_SIZE_U64;
        // SAFETY: nobody holds a reference to this memory.
        let answer = unsafe { libc::madvise(self.at(pages.start).cast(), length as usize, what) };
        assert_eq!(answer, 0, "{}", io::Error::last_os_error());
    }

    pub(crate) fn unmap(self, pages: Range<u64>) {
        let range = self.part(pages);
        // SAFETY: nobody holds a reference to this memory, and none of it is touched afterwards.
        let answer =
            unsafe { libc::munmap(range.start as *mut _, (range.end - range.start) as usize) };
        assert_eq!(answer, 0, "{}", io::Error::last_os_error());
    }

    /// Unmaps pages, and prevents other mappings of this process from taking their addresses.
    pub(crate) fn cover(self, pages: Range<u64>) {
        let range = self.part(pages);
        let length = (range.end - range.start) as usize;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let at = range.start as *mut libc::c_void;
        // SAFETY: the mapping replaces memory of a test, which does not touch it afterwards.
        let covered = unsafe { libc::mmap(at, length, libc::PROT_NONE, how, -1, 0) };
        assert_eq!(covered, at, "{}", io::Error::last_os_error());
    }

    /// Moves pages to the addresses of `to`, replacing what was there.
    pub(crate) fn move_to(self, pages: Range<u64>, to: Range<u64>) {
        let range = self.part(pages.clone());
        let length = (range.end - range.start) as usize;
        assert_eq!(length as u64, to.end - to.start);
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let to = to.start as *mut libc::c_void;
        // SAFETY: both ranges are memory of a test, to which nobody holds a reference.
        let moved = unsafe { libc::mremap(range.start as *mut _, length, length, how, to) };
        assert_eq!(moved, to, "{}", io::Error::last_os_error());
        self.cover(pages);
    }
}

/// Joins a thread with a timeout, because a thread that waits for a page which never arrives would
/// wait for ever.
pub(crate) fn join(thread: JoinHandle<()>) {
    until("the end of a thread", || thread.is_finished());
    thread.join().expect("it finds what it should");
}
