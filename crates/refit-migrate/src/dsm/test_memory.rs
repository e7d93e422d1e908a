//! Memory of this process whose frames are in a file, at the offsets that are its addresses: as a
//! replica's memory is, for the tests of stores and of the page home.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use refit_sys::memfd::{self, Pages};
use refit_sys::userfault::{Door, Flags, Userfault};

use crate::page::PAGE_SIZE;

/// Opens a userfaultfd for this process; `None` if this host does not permit it.
pub(super) fn userfault() -> Option<Userfault> {
    // SAFETY: only a `Mapping` is registered, to whose memory no reference outlives an access.
    let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
    let agreed = opened.and_then(|opened| super::agree(OwnedFd::from(opened)));
    agreed.inspect_err(|error| println!("skipped: userfaultfd: {error}")).ok()
}

/// Addresses that are reserved, and may be mapped to the frames in a file.
pub(super) struct Mapping {
    start: u64,
    length: u64,
}

impl Mapping {
    pub(super) fn reserve(pages: u64) -> Arc<Self> {
        let length = pages * PAGE_SIZE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), length as usize, libc::PROT_NONE, how, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        Arc::new(Self { start: base as u64, length })
    }

    /// Creates an empty file for its frames.
    pub(super) fn frames(&self) -> Arc<File> {
        let frames = memfd::create(c"refit-test", self.range().end, Pages::Base);
        Arc::new(File::from(frames.expect("a memfd")))
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + self.length
    }

    /// Returns the address of a page.
    pub(super) fn at(&self, page: u64) -> u64 {
        assert!(page < self.length / PAGE_SIZE);
        self.start + page * PAGE_SIZE
    }

    /// Returns the addresses of some pages.
    pub(super) fn pages(&self, pages: Range<u64>) -> Range<u64> {
        let start = self.at(pages.start);
        start..start + (pages.end - pages.start) * PAGE_SIZE
    }

    /// Maps the frames, without any access.
    pub(super) fn map(&self, frames: &File) -> io::Result<()> {
        self.replace(self.range(), libc::MAP_SHARED, frames.as_raw_fd())
    }

    /// Unmaps the frames of some pages.
    pub(super) fn unmap(&self, pages: Range<u64>) {
        self.replace(self.pages(pages), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
            .expect("reserved");
    }

    /// Unmaps all frames.
    pub(super) fn unmap_all(&self) {
        self.unmap(0..self.length / PAGE_SIZE);
    }

    fn replace(&self, range: Range<u64>, how: libc::c_int, file: libc::c_int) -> io::Result<()> {
        let (at, length) = (range.start as *mut libc::c_void, (range.end - range.start) as usize);
        let (how, offset) = (how | libc::MAP_FIXED, range.start.cast_signed());
        // SAFETY: these addresses are reserved by `self`, and nothing refers to what is there.
        let base = unsafe { libc::mmap(at, length, libc::PROT_NONE, how, file, offset) };
        if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Gives access to what is mapped.
    pub(super) fn open(&self) -> io::Result<()> {
        let (at, length) = (self.start as *mut libc::c_void, self.length as usize);
        // SAFETY: these addresses are reserved by `self`.
        match unsafe { libc::mprotect(at, length, libc::PROT_READ | libc::PROT_WRITE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn read(&self, page: u64) -> u64 {
        self.word(page).load(Ordering::SeqCst)
    }

    pub(super) fn write(&self, page: u64, value: u64) {
        self.word(page).store(value, Ordering::SeqCst);
    }

    pub(super) fn add_one(&self, page: u64) {
        self.word(page).fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the first word of a page. An access waits until the page is there.
    fn word(&self, page: u64) -> &AtomicU64 {
        let word = self.at(page) as *mut u64;
        // SAFETY: the address is aligned and within the mapping, which lives as long as `self` and
        // which tests access only while it is open; all accesses are atomic.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these addresses are reserved by `self`, and nobody uses them any more.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.length as usize) };
    }
}

/// Waits until something holds.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} has not come");
        // Others work meanwhile; nothing depends on how long this is.
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Waits for a thread, which would wait for ever for a page that does not come.
pub(super) fn join<T>(thread: JoinHandle<T>) -> T {
    until("the end of a thread", || thread.is_finished());
    thread.join().expect("no panic")
}

/// Returns a page that begins with this word.
pub(super) fn page_of(word: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE as usize];
    page[..8].copy_from_slice(&word.to_ne_bytes());
    page
}

/// Returns the first word of a page.
pub(super) fn word_of(page: &[u8]) -> u64 {
    u64::from_ne_bytes(page[..8].try_into().expect("8 bytes"))
}

/// Returns the first word of each of these pages.
pub(super) fn words_of(pages: &[u8]) -> Vec<u64> {
    pages.chunks(PAGE_SIZE as usize).map(word_of).collect()
}

/// Returns the word at an offset of a file.
pub(super) fn word_at(file: &File, offset: u64) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, offset).expect("it is there");
    u64::from_ne_bytes(word)
}
