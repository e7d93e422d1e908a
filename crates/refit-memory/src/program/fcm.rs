//! The interface of a file cache manager of anonymous memory: which pages of a region are in the program, and which are out
//! (Hui 2000, §3.2).
//!
//! ```text
//!            lend                 landed               recall                taken back
//!   out ─────────────► landing ─────────────► in ─────────────► leaving ─────────────► out
//!    ▲    (failed)  ◄─────┘                  │  ▲   (stays)  ◄────┘
//!    └──────────── forget ──────── doomed ◄──┘  └── settle
//! ```
//!
//! A page that is in, or doomed, can be lent too: a thread has missed it, or seemed to. Unless it arrives then, it is what it was; a
//! doomed page above all, which must not be evicted before the program has thrown it away.
//!
//! A page that is in has its frame in the program, where the program changes it as it likes; here is only noted that it is there. Between
//! `lend` and `landed` nobody else gets the page, so that no copy of it can be put where a later one has been already. Pages are told
//! by number: the address over the size of a page, less what the region has been moved by.

use crate::fcm::CacheError;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On its way into the program.
    Landing(Before),
    /// In the program.
    In,
    /// On its way out.
    Leaving,
    /// In the program, but the program throws it away, now or soon.
    Doomed,
}

/// What a page was when it was lent, and is again if it does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Out of the program.
    Out,
    /// In the program.
    In,
    /// Doomed.
    Doomed,
}

/// A page, for another implementation to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousPage {
    /// Its number.
    pub page: u64,
    /// Where it is.
    pub place: Place,
    /// Whether it has come back soon after it had left.
    pub wanted: bool,
}

/// The state of a cache: all pages that are not out, those first that came first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonymousState {
    /// The pages.
    pub pages: Vec<AnonymousPage>,
    /// What has been done; how many are resident is told by the pages.
    pub stats: AnonymousStats,
}

/// What a cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonymousStats {
    /// Pages that are in the program, or on their way.
    pub resident: u64,
    /// Pages that were asked for by threads that waited.
    pub faults: u64,
    /// Pages that were brought beside them.
    pub around: u64,
    /// Pages that were taken out.
    pub evictions: u64,
    /// Pages that came back soon after they had left.
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

/// Why a page cannot be had now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LendError {
    /// No frame is left: have pages evicted, ask again.
    #[error("no page frame is free")]
    NoFrame,
    /// The page is on its way, in or out: ask again when it has arrived.
    #[error("the page is on its way")]
    Moving,
    /// What is behind the cache has failed with this `errno`.
    #[error("the page could not be read: {}", std::io::Error::from_raw_os_error(*.0))]
    Host(i32),
}

/// So that the wrapper `fault` can let calls fail.
impl refit_objects::FromErrno for LendError {
    fn from_errno(errno: i32) -> Self {
        LendError::Host(errno)
    }
}

/// The cache of one region of anonymous memory.
#[refit_objects::interface(name = "anonymous", state = AnonymousState, version = 3)]
pub trait AnonymousCache {
    /// A thread waits for `page`. Fills `into`, whole pages, with it and with those that follow and are not in, as far
    /// as there are frames, and never beyond the next multiple of [`GROUP`] pages; how many. They are *landing*.
    fn lend(&self, page: u64, into: &mut [u8]) -> Result<usize, LendError>;
    /// Pages that were lent together, or some of them, have arrived; or (`arrived` false) could not, and are what they were.
    fn landed(&self, page: u64, count: usize, arrived: bool);
    /// These pages are in the program already, without ever having been asked for here. How many could be given a frame.
    fn adopt(&self, pages: &[u64]) -> usize;
    /// Chooses up to `most` pages to go out, sorted. They are *leaving*.
    fn recall(&self, most: usize) -> Vec<u64>;
    /// Pages that were leaving have left, with these bytes, which are written to what is behind; if that fails they are leaving still.
    /// Those that were forgotten meanwhile stay so.
    fn take_back(&self, pages: &[u64], bytes: &[u8]) -> Result<(), CacheError>;
    /// Pages that were leaving have left, and what is behind has them already.
    fn left(&self, pages: &[u64]);
    /// Pages that were leaving stay.
    fn stay(&self, pages: &[u64]);
    /// Forgets pages from `start` to before `end`, wherever they are: they are not the program's any more.
    fn forget(&self, start: u64, end: u64);
    /// The program throws the contents of these pages away, now or soon. Those that are out are forgotten. None is on its way.
    fn doom(&self, start: u64, end: u64);
    /// Pages that are doomed.
    fn doomed(&self) -> Vec<u64>;
    /// What has become of pages, as far as they are still doomed: they are in the program after all, or gone.
    fn settle(&self, pages: &[u64], there: bool);
    /// Takes pages from `start` to before `end` out, for another cache to [`join`](Self::join). None is on its way.
    fn split_off(&self, start: u64, end: u64) -> Vec<AnonymousPage>;
    /// Takes over what another cache has split off; their frames come with them.
    fn join(&self, pages: Vec<AnonymousPage>);
    /// What is here, and what has been done.
    fn stats(&self) -> AnonymousStats;
    /// A page that was lent has not been put there: the program has it already, as it is there. If it was doomed it still is.
    fn found(&self, page: u64);
    /// How many pages can go before any of other caches should: they have been used, and will hardly be again.
    fn spare(&self) -> u64 {
        0
    }
}

/// Pages that are brought together, at most, and have one lock where there are several: 64 KiB.
pub const GROUP: u64 = 16;
