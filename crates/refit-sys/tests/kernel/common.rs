//! Helpers of the tests of the wrappers: pages to fault on, child processes, and the skipping of
//! tests.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The page size, in bytes.
pub(crate) use refit_sys::memory::PAGE_SIZE;
/// A timeout that is reached only if the test fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Pages of this process to which nobody holds a reference.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    base: *mut u8,
    count: usize,
}

// SAFETY: the mapping is never unmapped, and touched by volatile accesses only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub(crate) fn anonymous(count: usize) -> Self {
        Self::map(count, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    pub(crate) fn shared(fd: BorrowedFd<'_>, count: usize) -> Self {
        Self::map(count, libc::MAP_SHARED, fd.as_raw_fd())
    }

    fn map(count: usize, how: i32, fd: i32) -> Self {
        let allowed = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), count * PAGE_SIZE, allowed, how, fd, 0) };
        assert_ne!(base, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        // A touch brings in one page, not its neighbours; a kernel without huge pages refuses the
        // advice and brings in one page anyway. SAFETY: advice changes no contents.
        unsafe { libc::madvise(base, count * PAGE_SIZE, libc::MADV_NOHUGEPAGE) };
        Self { base: base.cast(), count }
    }

    /// Excludes the pages from the children that other tests create.
    pub(crate) fn withhold(self) {
        // SAFETY: that changes nothing of what is mapped here.
        let done =
            unsafe { libc::madvise(self.base.cast(), self.count * PAGE_SIZE, libc::MADV_DONTFORK) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    pub(crate) fn range(self, pages: Range<usize>) -> Range<u64> {
        assert!(pages.end <= self.count);
        let address = |page: usize| self.base as u64 + (page * PAGE_SIZE) as u64;
        address(pages.start)..address(pages.end)
    }

    pub(crate) fn all(self) -> Range<u64> {
        self.range(0..self.count)
    }

    pub(crate) fn get(self, page: usize) -> u8 {
        assert!(page < self.count);
        // SAFETY: it lies in the mapping.
        unsafe { self.base.add(page * PAGE_SIZE).read_volatile() }
    }

    pub(crate) fn set(self, page: usize, value: u8) {
        assert!(page < self.count);
        // SAFETY: it lies in the mapping, which is writable.
        unsafe { self.base.add(page * PAGE_SIZE).write_volatile(value) }
    }
}

/// A child of this process that runs one function; killed on drop.
pub(crate) struct Child {
    id: i32,
}

impl Child {
    /// Runs `what` in a copy of this process in which the calling thread is the only one. The copy
    /// exits with the result of `what`, or with 101 after a panic.
    pub(crate) fn of(what: impl FnOnce() -> i32) -> Self {
        // SAFETY: the child does what the C library lets it do after a fork (it sees to its own
        // locks), prints nothing and ends by `_exit`.
        let id = unsafe { libc::fork() };
        assert!(id >= 0, "{}", io::Error::last_os_error());
        if id == 0 {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the limit is read. A child that is to die of a signal leaves no file behind.
            unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
            let status = catch_unwind(AssertUnwindSafe(what)).unwrap_or(101);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(status) };
        }
        Self { id }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id.cast_unsigned()
    }

    /// Waits for the child; returns its exit status, or the negated number of the signal that
    /// killed it.
    pub(crate) fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the answer.
        let waited = unsafe { libc::waitpid(self.id, &raw mut status, 0) };
        assert_eq!(waited, self.id, "{}", io::Error::last_os_error());
        std::mem::forget(self);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.id, signal) }, 0);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: it is a child of ours that has not been waited for.
        unsafe {
            libc::kill(self.id, libc::SIGKILL);
            libc::waitpid(self.id, std::ptr::null_mut(), 0);
        }
    }
}

/// Creates a child that only waits for signals.
pub(crate) fn idle() -> Child {
    Child::of(|| {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    })
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what}: it did not come");
        std::thread::yield_now();
    }
}

/// Returns the result, or `None` with a message where this host does not permit the operation.
pub(crate) fn offered<T>(what: &str, answer: io::Result<T>) -> Option<T> {
    match answer {
        Ok(got) => Some(got),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::ENOTTY | libc::ENOENT)
            ) =>
        {
            println!("skipped: {what}: {error}");
            None
        }
        Err(error) => panic!("{what}: {error}"),
    }
}
