//! The interface of a file cache manager of anonymous memory: which pages of a region are in the
//! program, and which are out (Hui 2000, §3.2).
//!
//! ```text
//!            lend                 landed               recall                taken back
//!   out ─────────────► landing ─────────────► in ─────────────► leaving ─────────────► out
//!    ▲    (failed)  ◄─────┘                  │  ▲   (stays)  ◄────┘
//!    └──────────── forget ──────── doomed ◄──┘  └── settle
//! ```
//!
//! A page that is in, or doomed, can be lent too: a fault on it has been reported, possibly one
//! that is out of date. If the page does not arrive, it returns to its former place. That matters
//! most for a doomed page, which must not be evicted before the program has discarded it.
//!
//! A page that is present has its frame in the program, where the program changes it freely; the
//! cache only records that it is there. Between `lend` and `landed` no other thread gets the page,
//! so that no copy of it can replace a later one. Pages are numbered: the address divided by the
//! page size, minus the distance by which the region has been moved.

use crate::fcm::CacheError;

/// The place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The page is entering the program.
    Landing(Before),
    /// The page is in the program.
    In,
    /// The page is leaving the program.
    Leaving,
    /// The page is in the program, but the program discards it, now or soon.
    Doomed,
}

/// The place of a page when it was lent, to which it returns if it does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The page was out of the program.
    Out,
    /// The page was in the program.
    In,
    /// The page was doomed.
    Doomed,
}

/// A page in the form that another implementation takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousPage {
    /// The number of the page.
    pub page: u64,
    /// The place of the page.
    pub place: Place,
    /// Whether it returned soon after it had left.
    pub wanted: bool,
}

/// The state of a cache: all pages that are not out, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonymousState {
    /// The pages.
    pub pages: Vec<AnonymousPage>,
    /// The counters; `resident` is zero, since the pages imply it.
    pub stats: AnonymousStats,
}

/// The contents and counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonymousStats {
    /// Number of pages that are in the program, or on their way.
    pub resident: u64,
    /// Number of pages that were lent because a thread waited for them.
    pub faults: u64,
    /// Number of pages that were brought in along with those.
    pub around: u64,
    /// Number of pages that were evicted.
    pub evictions: u64,
    /// Number of pages that returned soon after they had left.
    pub returns: u64,
}

impl std::iter::Sum for AnonymousStats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            resident: sum.resident + one.resident,
            faults: sum.faults + one.faults,
            around: sum.around + one.around,
            evictions: sum.evictions + one.evictions,
            returns: sum.returns + one.returns,
        })
    }
}

/// The reason that a page is not available now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LendError {
    /// No frame is left: have pages evicted, and try again.
    #[error("no page frame is free")]
    NoFrame,
    /// The page is on its way, in or out: try again when it has arrived.
    #[error("the page is being read")]
    Moving,
    /// The representative behind the cache has failed with this `errno`.
    #[error("the page could not be read: {}", std::io::Error::from_raw_os_error(*.0))]
    Host(i32),
}

/// Lets the wrapper `fault` make calls fail.
impl refit_objects::FromErrno for LendError {
    fn from_errno(errno: i32) -> Self {
        LendError::Host(errno)
    }
}

/// The cache of one region of anonymous memory.
#[refit_objects::interface(name = "anonymous", state = AnonymousState, version = 3)]
pub trait AnonymousCache {
    /// Lends `page`, for which a thread waits. Fills `into`, which has room for whole pages, with
    /// it and with those behind it that are out, as far as there are frames, but never beyond the
    /// next multiple of [`GROUP`] pages. Returns their number. They are *landing* afterwards.
    fn lend(&self, page: u64, into: &mut [u8]) -> Result<usize, LendError>;
    /// Completes the landing of all or some of the pages that were lent together: they have
    /// arrived, or (`arrived` false) return to their former places.
    fn landed(&self, page: u64, count: usize, arrived: bool);
    /// Records pages that are in the program already without having been lent. Returns the number
    /// of them that could be given a frame.
    fn adopt(&self, pages: &[u64]) -> usize;
    /// Chooses up to `most` pages to leave, sorted. They are *leaving* afterwards.
    fn recall(&self, most: usize) -> Vec<u64>;
    /// Records that pages that were leaving have left with these contents, and writes the contents
    /// to the representative. If that fails, the pages are still leaving. Pages that were forgotten
    /// in the meantime stay forgotten.
    fn take_back(&self, pages: &[u64], bytes: &[u8]) -> Result<(), CacheError>;
    /// Records that pages that were leaving have left, and that the representative has their
    /// contents already.
    fn left(&self, pages: &[u64]);
    /// Records that pages that were leaving stay.
    fn stay(&self, pages: &[u64]);
    /// Forgets pages `[start, end)` in any place: they are not the program's any more.
    fn forget(&self, start: u64, end: u64);
    /// Records that the program discards the contents of pages `[start, end)`, now or soon. Those
    /// that are out are forgotten. None may be on its way.
    fn doom(&self, start: u64, end: u64);
    /// Returns the doomed pages.
    fn doomed(&self) -> Vec<u64>;
    /// Decides about those of `pages` that are still doomed: they are in the program after all, or
    /// gone.
    fn settle(&self, pages: &[u64], there: bool);
    /// Removes pages `[start, end)`, for another cache to [`join`](Self::join). None may be on its
    /// way.
    fn split_off(&self, start: u64, end: u64) -> Vec<AnonymousPage>;
    /// Takes over pages that another cache has split off, along with their frames.
    fn join(&self, pages: Vec<AnonymousPage>);
    /// Returns the contents and counters.
    fn stats(&self) -> AnonymousStats;
    /// Records that a page that was lent has not been put into the program, which has it already
    /// with its own contents. If the page was doomed, it still is.
    fn found(&self, page: u64);
    /// Returns the number of pages that should be evicted before any of other caches: they have
    /// been used, and will hardly be used again.
    fn spare(&self) -> u64 {
        0
    }
}

/// The maximum number of pages that are brought in together, which share a lock if there are
/// several: 64 KiB.
pub const GROUP: u64 = 16;
