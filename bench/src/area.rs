//! Anonymous memory of a workload, on which faults are measured.
//!
//! Its pages are populated and discarded without the compiler's knowledge, but never change
//! otherwise than by the accesses here. All access is atomic, so threads may share it.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use refit_sys::memory::PAGE_SIZE;
use refit_sys::userfault::{Features, Flags, Modes, Userfault};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The number of words of a page.
pub(crate) const WORDS: usize = PAGE_SIZE / 8;

/// The memory limit in MiB. Refit serves the faults of a program that uses more than half of it.
pub(crate) const LIMIT: usize = 256;
const FILLER: usize = 150;
/// The longest time until refit serves an area.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time to wait for refit to examine the mappings of a program. It does so in rounds of 4 to 20
/// ms, and does not announce when it has.
const ROUND: Duration = Duration::from_millis(10);

/// A private mapping of anonymous memory in pages of 4 KiB.
#[derive(Debug)]
pub(crate) struct Area {
    base: NonNull<u8>,
    pages: usize,
}

// SAFETY: the mapping belongs to this value alone, and is not tied to a thread.
unsafe impl Send for Area {}
// SAFETY: all access through `&self` is atomic, except that of `bytes`, whose caller guarantees
// that there is no concurrent write.
unsafe impl Sync for Area {}

impl Area {
    /// Maps this number of pages, none of which is populated yet.
    pub(crate) fn new(pages: usize) -> Result<Self, String> {
        let length = pages * PAGE_SIZE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, flags) };
        let base = base.map_err(|e| format!("{pages} pages could not be mapped: {e}"))?;
        // SAFETY: the mapping belongs to this function, and has no contents yet.
        let small = unsafe { madvise(base, length, Advice::LinuxNoHugepage) };
        small.map_err(|e| format!("huge pages could not be excluded: {e}"))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or("the kernel maps at 0")?;
        Ok(Self { base, pages })
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Returns one word of a page.
    pub(crate) fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!(page < self.pages && word < WORDS, "word {word} of page {page}");
        // SAFETY: the word is in the mapping, as was checked above, is aligned, and all accesses to
        // it are atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(page * PAGE_SIZE + word * 8).cast()) }
    }

    /// Returns the bytes of a page.
    ///
    /// # Safety
    ///
    /// No thread writes to the page for as long as the bytes are used.
    pub(crate) unsafe fn bytes(&self, page: usize) -> &[u8] {
        assert!(page < self.pages, "page {page}");
        // SAFETY: the page is in the mapping; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(page * PAGE_SIZE), PAGE_SIZE) }
    }

    /// Returns the addresses of pages.
    pub(crate) fn addresses(&self, pages: Range<usize>) -> Range<u64> {
        let address = |page: usize| self.base.as_ptr() as u64 + (page * PAGE_SIZE) as u64;
        address(pages.start)..address(pages.end)
    }

    /// Returns the page of an address.
    pub(crate) fn page(&self, address: u64) -> usize {
        (address - self.addresses(0..0).start) as usize / PAGE_SIZE
    }

    /// Discards pages, which are zeros at the next access.
    pub(crate) fn discard(&self, pages: Range<usize>) {
        assert!(pages.start <= pages.end && pages.end <= self.pages, "pages {pages:?}");
        let at = self.base.as_ptr().wrapping_add(pages.start * PAGE_SIZE).cast();
        // SAFETY: the pages are in the mapping; to atomic accesses, discarding them is a write of
        // zeros.
        let _ = unsafe { madvise(at, pages.len() * PAGE_SIZE, Advice::LinuxDontNeed) };
    }

    /// Registers the area with a userfaultfd of this process.
    pub(crate) fn tell(&self, modes: Modes) -> Result<Userfault, String> {
        // SAFETY: only this area is registered, and `bytes` alone creates a reference to it that is
        // not atomic.
        let opened = unsafe {
            Userfault::open(refit_sys::userfault::Door::Call, Flags::CLOEXEC | Flags::NONBLOCK)
        };
        let userfault = opened.map_err(|e| format!("no userfaultfd: {e}"))?;
        userfault.agree(Features::PAGEFAULT_FLAG_WP).map_err(|e| format!("userfaultfd: {e}"))?;
        let all = self.addresses(0..self.pages);
        userfault.register(all, modes).map_err(|e| format!("registering: {e}"))?;
        Ok(userfault)
    }

    /// Creates a populated area that is large enough for refit to serve a program with [`LIMIT`].
    pub(crate) fn filler() -> Result<Self, String> {
        let filler = Self::new(FILLER << 20 >> 12)?;
        (0..filler.pages).for_each(|page| filler.word(page, 0).store(1, Relaxed));
        Ok(filler)
    }

    /// Waits until refit serves the faults of the area. Serving begins when some pages are
    /// populated, which repeated calls of `touch` ensure.
    pub(crate) fn await_served(&self, mut touch: impl FnMut()) -> Result<(), String> {
        let began = Instant::now();
        while !self.served() {
            if began.elapsed() > SERVICE_TIMEOUT {
                return Err("refit does not serve it".to_owned());
            }
            touch();
            thread::sleep(ROUND);
        }
        Ok(())
    }

    /// Returns whether the faults of the area are served by now.
    pub(crate) fn served(&self) -> bool {
        let all = self.addresses(0..self.pages);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            if let Some((start, end)) = range {
                let parse = |text| u64::from_str_radix(text, 16).ok();
                if let (Some(start), Some(end)) = (parse(start), parse(end)) {
                    inside = start <= all.start && all.end <= end;
                }
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return flags.split_whitespace().any(|flag| flag == "um");
            }
        }
        false
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more. A failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.pages * PAGE_SIZE) };
    }
}
