//! The interface of a region: a part of an address space, which decides which pages are brought in
//! together (Hui 2000, §3.2).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use refit_objects::{Choices, Name, State, TransferError};
use refit_sys::memory::PAGE_SIZE_U64;

use super::fcm::{AnonymousCacheRef, GROUP, LendError};
use super::hat::{InstallError, Stopped, TranslationRef};
use crate::PAGE_SIZE;
use crate::scratch::with_buffer;

/// The reason that a fault was not resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No frame is left: have pages evicted, and try again.
    NoFrame,
    /// The page is in transit: try again when it has arrived.
    Moving,
    /// The program is changing its mappings: read its messages, and try again.
    Changing,
    /// There is no region at this address.
    Unknown,
    /// Nothing that refit serves is mapped there.
    Unmapped,
    /// The program has ended.
    Gone,
    /// The page is lost: the representative behind its cache has failed with this `errno`.
    Lost(i32),
}

/// Lets the wrapper `fault` make calls fail.
impl refit_objects::FromErrno for FaultError {
    fn from_errno(errno: i32) -> Self {
        FaultError::Lost(errno)
    }
}

/// The objects that a region depends on.
#[derive(Clone, Copy, Debug)]
pub struct RegionParts {
    /// The cache of its pages.
    pub fcm: AnonymousCacheRef,
    /// The translation that puts them into the program.
    pub hat: TranslationRef,
    /// The distance in bytes by which it has been moved since it was first mapped: the difference
    /// between an address and its position in the cache.
    pub moved: i64,
}

/// The use of a region so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionState {
    /// The page behind the last one that was brought in.
    pub next: u64,
    /// The number of pages that were brought in then.
    pub window: u64,
}

/// A part of an address space.
#[refit_objects::interface(name = "region", state = RegionState, version = 2)]
pub trait Region {
    /// Resolves the fault of a thread that waits for the page at `address`. On success the page is
    /// in, possibly with others, none of them at or beyond `end`, where this region ends.
    fn fault(&self, address: u64, end: u64) -> Result<(), FaultError>;
    /// Returns whether it should be served. If not, its pages are brought back, and the kernel
    /// alone resolves its faults.
    fn served(&self) -> bool {
        true
    }
}

/// Brings in more pages at once the longer faults are sequential.
pub(super) const DEFAULT: &str = "default";
/// Always brings in as many pages as possible at once.
pub(super) const DENSE: &str = "sequential";

/// Serves only until it can be left to the kernel.
pub(super) const NATIVE: &str = "native";

/// Creates a region. Its implementation is `default` until it is swapped.
pub fn create_region(name: impl Into<Name>, parts: RegionParts) -> RegionRef {
    let choices = Choices::new()
        .with(DEFAULT, RegionInterface::rep, move || Stretch::new(parts, 1))
        .with(DENSE, RegionInterface::rep, move || Stretch::new(parts, GROUP))
        .with(NATIVE, RegionInterface::rep, move || Native(Stretch::new(parts, GROUP)));
    choices.create(name, DEFAULT).expect("it is one of the choices")
}

/// Relaxed throughout: the history of faults is a hint.
#[derive(Debug)]
struct Stretch {
    parts: RegionParts,
    /// The minimum number of pages brought in at once.
    least: u64,
    next: AtomicU64,
    window: AtomicU64,
}

impl Stretch {
    fn new(parts: RegionParts, least: u64) -> Self {
        Self { parts, least, next: AtomicU64::new(0), window: AtomicU64::new(least) }
    }

    /// Returns the number of pages to bring in for a fault at `page`.
    fn window(&self, page: u64) -> usize {
        let before = self.window.load(Relaxed);
        let window = match self.next.load(Relaxed) == page {
            true => (2 * before).clamp(self.least, GROUP),
            false => (before / 2).max(self.least),
        };
        self.window.store(window, Relaxed);
        window as usize
    }
}

impl Region for Stretch {
    fn fault(&self, address: u64, end: u64) -> Result<(), FaultError> {
        let address = address / PAGE_SIZE_U64 * PAGE_SIZE_U64;
        let page = address.wrapping_add_signed(-self.parts.moved) / PAGE_SIZE_U64;
        let window =
            self.window(page).min((end.saturating_sub(address) / PAGE_SIZE_U64).max(1) as usize);
        let fcm = self.parts.fcm;
        with_buffer(window, |buffer| {
            let count = match fcm.lend(page, buffer) {
                Ok(count) => count,
                Err(LendError::NoFrame) => return Err(FaultError::NoFrame),
                Err(LendError::Moving) => return Err(FaultError::Moving),
                Err(LendError::Host(errno)) => return Err(FaultError::Lost(errno)),
            };
            let landing = Landing { fcm, page, count, done: Cell::new((0, false)) };
            self.next.store(page + count as u64, Relaxed);
            let installed = self.parts.hat.install(address, &buffer[..count * PAGE_SIZE]);
            landing.done.set(match installed {
                Ok(()) => (count, false),
                Err(Stopped { done, why }) => (done, why == InstallError::Present),
            });
            installed.or_else(|stopped| match stopped.why {
                // The first page is the one that the thread waits for.
                _ if stopped.done > 0 => Ok(()),
                InstallError::Present => Ok(()),
                InstallError::Changing => Err(FaultError::Changing),
                InstallError::Unmapped => Err(FaultError::Unmapped),
                InstallError::Gone => Err(FaultError::Gone),
                InstallError::Host(errno) => Err(FaultError::Lost(errno)),
            })
        })
    }
}

/// Reports to the cache the outcome of the pages that it has lent, even if the call panics.
struct Landing {
    fcm: AnonymousCacheRef,
    page: u64,
    count: usize,
    /// The number of pages that have been put in, and whether the next one was in already.
    done: Cell<(usize, bool)>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let (mut done, found) = self.done.get();
        if done > 0 {
            self.fcm.landed(self.page, done, true);
        }
        if found {
            self.fcm.found(self.page + done as u64);
            done += 1;
        }
        if done < self.count {
            self.fcm.landed(self.page + done as u64, self.count - done, false);
        }
    }
}

impl State<RegionState> for Stretch {
    const PROMPT: bool = true;

    fn export(&self) -> Result<RegionState, TransferError> {
        Ok(RegionState { next: self.next.load(Relaxed), window: self.window.load(Relaxed) })
    }

    fn import(&self, state: RegionState) -> Result<(), TransferError> {
        self.next.store(state.next, Relaxed);
        self.window.store(state.window.clamp(self.least, GROUP), Relaxed);
        Ok(())
    }
}

/// A region that will be left to the kernel.
#[derive(Debug)]
struct Native(Stretch);

impl Region for Native {
    fn fault(&self, address: u64, end: u64) -> Result<(), FaultError> {
        self.0.fault(address, end)
    }

    fn served(&self) -> bool {
        false
    }
}

impl State<RegionState> for Native {
    const PROMPT: bool = true;

    fn export(&self) -> Result<RegionState, TransferError> {
        self.0.export()
    }

    fn import(&self, state: RegionState) -> Result<(), TransferError> {
        self.0.import(state)
    }
}
