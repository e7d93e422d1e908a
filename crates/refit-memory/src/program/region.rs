//! The interface of a region: a part of an address space, and which pages come together there (Hui 2000, §3.2).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use refit_objects::{Choices, Name, State, TransferError};

use super::fcm::{AnonymousCacheRef, GROUP, LendError};
use super::hat::{InstallError, Stopped, TranslationRef};
use crate::PAGE_SIZE;
use crate::scratch::with_buffer;

const PAGE: u64 = PAGE_SIZE as u64;

/// Why a fault was not resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No frame is left: have pages evicted, ask again.
    NoFrame,
    /// The page is on its way: ask again when it has arrived.
    Moving,
    /// The program changes its mappings: hear what it says, ask again.
    Changing,
    /// No region is there.
    Unknown,
    /// Nothing of ours is mapped there.
    Unmapped,
    /// The program has ended.
    Gone,
    /// The page is lost: what was behind it has failed with this `errno`.
    Lost(i32),
}

/// So that the wrapper `fault` can let calls fail.
impl refit_objects::FromErrno for FaultError {
    fn from_errno(errno: i32) -> Self {
        FaultError::Lost(errno)
    }
}

/// What a region stands on.
#[derive(Clone, Copy, Debug)]
pub struct RegionParts {
    /// What is mapped.
    pub fcm: AnonymousCacheRef,
    /// Where.
    pub hat: TranslationRef,
    /// By how many bytes it has been moved since it was first mapped: the difference of an address and its place in the cache.
    pub moved: i64,
}

/// How a region has been used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionState {
    /// The page behind the last that came.
    pub next: u64,
    /// How many came then.
    pub window: u64,
}

/// A part of an address space.
#[refit_objects::interface(name = "region", state = RegionState, version = 2)]
pub trait Region {
    /// A thread waits for the page at `address`. It is there when this has returned well, and perhaps others with it, none of them
    /// at `end` or beyond, where this region ends.
    fn fault(&self, address: u64, end: u64) -> Result<(), FaultError>;
    /// Whether it is to be served: if not, its pages come back, and the kernel alone resolves its faults.
    fn served(&self) -> bool {
        true
    }
}

/// Brings more pages together the longer faults come one behind the other.
pub(super) const DEFAULT: &str = "default";
/// Brings as many as can come together, always.
pub(super) const DENSE: &str = "sequential";

/// Serves only what is not the kernel's yet.
pub(super) const NATIVE: &str = "native";

/// Makes a region: `default` until it is swapped.
pub fn create_region(name: impl Into<Name>, parts: RegionParts) -> RegionRef {
    let choices = Choices::new()
        .with(DEFAULT, RegionInterface::rep, move || Stretch::new(parts, 1))
        .with(DENSE, RegionInterface::rep, move || Stretch::new(parts, GROUP))
        .with(NATIVE, RegionInterface::rep, move || Native(Stretch::new(parts, GROUP)));
    choices.create(name, DEFAULT).expect("it is one of the choices")
}

/// Relaxed throughout: what is known of the past is a hint.
#[derive(Debug)]
struct Stretch {
    parts: RegionParts,
    /// Pages that come together at least.
    least: u64,
    next: AtomicU64,
    window: AtomicU64,
}

impl Stretch {
    fn new(parts: RegionParts, least: u64) -> Self {
        Self { parts, least, next: AtomicU64::new(0), window: AtomicU64::new(least) }
    }

    /// How many pages are brought for a fault at `page`.
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
        let address = address / PAGE * PAGE;
        let page = address.wrapping_add_signed(-self.parts.moved) / PAGE;
        let window = self.window(page).min((end.saturating_sub(address) / PAGE).max(1) as usize);
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
                // The first is the one that is waited for.
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

/// Tells the cache what has become of pages that it has lent, whichever way the call ends.
struct Landing {
    fcm: AnonymousCacheRef,
    page: u64,
    count: usize,
    /// So many of them have been put there, and whether the next was there already.
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

/// A region that is to be the kernel's.
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
