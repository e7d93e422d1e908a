//! The cached pages of one partition of a file, and what can be done to them under its lock.
//!
//! ## What holds whenever nobody has the lock
//!
//! * **Zero tail.** Bytes of a page at or beyond the size of the file are zero, unless the page is
//!   [`BUSY`]. So growing the file needs no look at its pages.
//! * **Size on the host.** Whatever the host's file has lies below `on_host` and `on_host` is at most
//!   the size. If it is less, the page with the last byte is here and dirty or being written: writing
//!   all dirty pages back always gives the host's file the right size.
//! * **Dirty twice.** The index has a page as dirty exactly if its descriptor says [`DIRTY`]. The index
//!   finds dirty pages in order of the file; the descriptor tells physical memory.
//! * **Flights.** A page is [`BUSY`] or [`WRITING`] exactly if a flight covers it: a thread is calling
//!   the host for it without the lock and will come back.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::factory::CacheParts;
use crate::fcm::{CacheError, FileCacheRef, MAX_SIZE, PAGE_SIZE};
use crate::frames::{BUSY, DIRTY, Frame, FramePool};
use crate::lazy::LazyIndex;

const PAGE: u64 = PAGE_SIZE as u64;

/// What all pages of a file have in common.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) parts: CacheParts,
    /// The object that the pages belong to; known once the object has been made.
    pub(crate) owner: Arc<OnceLock<FileCacheRef>>,
    /// Size of the file in bytes. Raised under the lock of the page that the new last byte is in,
    /// lowered under all locks; so who holds any lock sees a size that does not fall meanwhile.
    /// Relaxed: the locks order it with the bytes, and a bare look is a guess anyway.
    size: AtomicU64,
    /// See the module's "size on the host". Changed like `size`.
    on_host: AtomicU64,
}

impl File {
    /// An empty file.
    pub(crate) fn new(parts: CacheParts, owner: Arc<OnceLock<FileCacheRef>>) -> Self {
        Self { parts, owner, size: AtomicU64::new(0), on_host: AtomicU64::new(0) }
    }

    pub(crate) fn pool(&self) -> &FramePool {
        &self.parts.frames
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    pub(crate) fn on_host(&self) -> u64 {
        self.on_host.load(Relaxed)
    }

    /// Under the lock of the page with byte `end - 1`.
    pub(crate) fn grow(&self, end: u64) {
        self.size.fetch_max(end, Relaxed);
    }

    /// The host's file is about to reach to `end`. Under the lock of the page with byte `end - 1`.
    pub(crate) fn grow_on_host(&self, end: u64) {
        self.on_host.fetch_max(end, Relaxed);
    }

    /// Here and on the host. Under all locks.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Relaxed);
        self.on_host.store(size, Relaxed);
    }

    fn allocate(&self, page: u64) -> Option<Frame> {
        self.parts.pm.allocate(*self.owner.get()?, page)
    }
}

/// Bytes `[start, end)` of a file, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    /// The span of a write; `None` when there is nothing to write.
    pub(crate) fn of(offset: u64, len: usize) -> Result<Option<Self>, CacheError> {
        if len == 0 {
            return Ok(None);
        }
        let end = offset.checked_add(len as u64).filter(|&end| end <= MAX_SIZE);
        let end = end.ok_or(CacheError::Host(libc::EFBIG))?;
        Ok(Some(Self { start: offset, end }))
    }

    /// The pages that the span touches.
    pub(crate) fn pages(self) -> RangeInclusive<u64> {
        self.start / PAGE..=(self.end - 1) / PAGE
    }

    /// The part of the span that lies in `page`, as offsets in the page.
    pub(crate) fn within(self, page: u64) -> std::ops::Range<usize> {
        let base = page * PAGE;
        let from = self.start.max(base) - base;
        let to = self.end.min(base + PAGE) - base;
        from as usize..to as usize
    }
}

/// The pages whose bytes overlap `[start, end)`; `None` when there are none.
pub(crate) fn pages_of(start: u64, end: u64) -> Option<RangeInclusive<u64>> {
    (start < end).then(|| start / PAGE..=(end - 1) / PAGE)
}

/// A run of pages for which a thread is calling the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Counts flights of the partition.
    pub(crate) ticket: u64,
    pub(crate) writes: bool,
}

impl Flight {
    fn meets(&self, pages: &RangeInclusive<u64>) -> bool {
        self.first <= *pages.end() && *pages.start() <= self.last
    }
}

/// Why a write cannot go on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A page is busy: wait for it.
    Busy,
    /// Part of this page stays as it is in the file: fill it first.
    Unfilled(u64),
}

/// The pages of one partition: all of them are protected by one lock.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) index: LazyIndex,
    pub(crate) flights: Vec<Flight>,
    tickets: u64,
    /// Flights to the host that failed.
    pub(crate) failures: u64,
    /// Threads that wait for a flight to land.
    pub(crate) waiting: u32,
    pub(crate) calls: u64,
    pub(crate) faults: u64,
}

impl Pages {
    pub(crate) fn with_stripes(stripes: usize) -> Self {
        Pages { index: LazyIndex::new(stripes), ..Pages::default() }
    }

    pub(crate) fn get(&self, file: &File, page: u64) -> Option<Frame> {
        self.index.get(file.pool(), page)
    }

    /// The frame of a page that is going to be used or marked: if a lazy transfer has left it behind, it moves now.
    pub(crate) fn demand(&mut self, file: &File, page: u64) -> Option<Frame> {
        self.index.demand(file.pool(), page)
    }

    /// Takes a frame for `page`, marked busy: no one else sees what is in it.
    pub(crate) fn add_busy(&mut self, file: &File, page: u64) -> Option<Frame> {
        let frame = file.allocate(page)?;
        file.pool().set(frame, BUSY);
        self.index.insert(file.pool(), frame);
        Some(frame)
    }

    /// Takes `page` out and frees its frame, whatever it holds.
    pub(crate) fn drop_page(&mut self, file: &File, page: u64) {
        if let Some(frame) = self.index.remove(file.pool(), page) {
            file.parts.pm.free(frame);
        }
    }

    /// The page has been demanded.
    pub(crate) fn mark_dirty(&mut self, file: &File, page: u64, frame: Frame) {
        if file.pool().flags(frame) & DIRTY == 0 {
            file.pool().set(frame, DIRTY);
            self.index.mark_dirty(page);
        }
    }

    /// The page has been demanded.
    pub(crate) fn mark_clean(&mut self, file: &File, page: u64, frame: Frame) {
        file.pool().clear(frame, DIRTY);
        self.index.mark_clean(page);
    }

    pub(crate) fn take_off(&mut self, first: u64, last: u64, writes: bool) -> u64 {
        self.tickets += 1;
        self.flights.push(Flight { first, last, ticket: self.tickets, writes });
        self.tickets
    }

    pub(crate) fn land(&mut self, ticket: u64) {
        self.flights.retain(|flight| flight.ticket != ticket);
        if self.flights.is_empty() {
            // An idle cache keeps no memory for what it does not do.
            self.flights = Vec::new();
        }
    }

    pub(crate) fn last_ticket(&self) -> u64 {
        self.tickets
    }

    /// Whether a flight touches one of `pages`.
    pub(crate) fn in_flight(&self, pages: &RangeInclusive<u64>) -> bool {
        self.flights.iter().any(|flight| flight.meets(pages))
    }

    /// Whether a flight to the host that began no later than `ticket` touches one of `pages`.
    pub(crate) fn being_written(&self, pages: &RangeInclusive<u64>, ticket: u64) -> bool {
        let old = |flight: &&Flight| flight.writes && flight.ticket <= ticket;
        self.flights.iter().filter(old).any(|flight| flight.meets(pages))
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.index.dirty() > 0 || self.flights.iter().any(|flight| flight.writes)
    }

    pub(crate) fn has_dirty(&self, pages: &RangeInclusive<u64>) -> bool {
        self.index.first_dirty(pages).is_some()
    }

    /// Where the last dirty page ends, or the file if that is before; 0 without dirty pages.
    pub(crate) fn dirty_end(&self, file: &File) -> u64 {
        self.index.last_dirty().map_or(0, |page| ((page + 1) * PAGE).min(file.size()))
    }

    /// Dirty pages, those on their way to the host included.
    pub(crate) fn dirty_pages(&self, file: &File) -> u64 {
        let writing = |flight: &&Flight| flight.writes;
        let clean = |page: &u64| {
            self.get(file, *page).is_some_and(|frame| file.pool().flags(frame) & DIRTY == 0)
        };
        let runs = self.flights.iter().filter(writing).flat_map(|f| f.first..=f.last);
        (self.index.dirty() + runs.filter(clean).count()) as u64
    }

    /// The first thing that keeps `span` from being written now.
    pub(crate) fn obstacle(&self, file: &File, span: Span) -> Option<Obstacle> {
        for page in span.pages() {
            match self.get(file, page) {
                Some(frame) if file.pool().flags(frame) & BUSY != 0 => return Some(Obstacle::Busy),
                None if needs_fill(file, span, page) => return Some(Obstacle::Unfilled(page)),
                _ => {}
            }
        }
        None
    }

    /// Takes frames, marked busy, for the pages of `span` that are not here. All of them or none.
    /// There must be no obstacle.
    pub(crate) fn claim(&mut self, file: &File, span: Span) -> Result<(), CacheError> {
        for page in span.pages() {
            if self.get(file, page).is_none() && self.add_busy(file, page).is_none() {
                self.unclaim(file, span);
                return Err(CacheError::NoFrame);
            }
        }
        Ok(())
    }

    /// Gives back what `claim` took. Under the same lock, so that the only busy pages are its own.
    pub(crate) fn unclaim(&mut self, file: &File, span: Span) {
        for page in span.pages() {
            let busy = |frame: &Frame| file.pool().flags(*frame) & BUSY != 0;
            if self.get(file, page).filter(busy).is_some() {
                self.drop_page(file, page);
            }
        }
    }

    /// Copies `data` into the pages of `span`, which have been claimed, and marks them dirty.
    pub(crate) fn store(&mut self, file: &File, span: Span, data: &[u8]) {
        let pool = file.pool();
        let mut done = 0;
        for page in span.pages() {
            let Some(frame) = self.demand(file, page) else {
                unreachable!("page {page} was claimed under this lock")
            };
            let within = span.within(page);
            if pool.flags(frame) & BUSY != 0 {
                pool.zero(frame, 0..within.start);
                pool.zero(frame, within.end..PAGE_SIZE);
                pool.clear(frame, BUSY);
            } else {
                file.parts.pm.touch(frame);
            }
            pool.copy_in(frame, within.start, &data[done..done + within.len()]);
            done += within.len();
            self.mark_dirty(file, page, frame);
        }
        file.grow(span.end);
    }

    /// The pages among `pages` that are here, in no order.
    pub(crate) fn here(&self, file: &File, pages: &RangeInclusive<u64>) -> Vec<u64> {
        if pages.end() - pages.start() < self.index.len() as u64 {
            pages.clone().filter(|&page| self.get(file, page).is_some()).collect()
        } else {
            let page = |frame| file.pool().page(frame);
            self.index.frames().map(page).filter(|page| pages.contains(page)).collect()
        }
    }

    /// Forgets `pages`, none of which is in flight.
    pub(crate) fn forget(&mut self, file: &File, pages: &RangeInclusive<u64>) {
        debug_assert!(!self.in_flight(pages), "a page in flight is not forgotten");
        for page in self.here(file, pages) {
            self.drop_page(file, page);
        }
    }

    /// Makes the pages fit a file of `size` bytes: frees pages beyond, zeroes the tail of the last.
    /// None of them is in flight.
    pub(crate) fn cut(&mut self, file: &File, size: u64) {
        if let Some(beyond) = pages_of(size.next_multiple_of(PAGE), u64::MAX) {
            self.forget(file, &beyond);
        }
        let tail = (size % PAGE) as usize;
        if tail != 0
            && let Some(frame) = self.get(file, size / PAGE)
        {
            file.pool().zero(frame, tail..PAGE_SIZE);
        }
    }
}

/// Whether a write of `span` leaves bytes of `page` that only the host has.
fn needs_fill(file: &File, span: Span, page: u64) -> bool {
    let start = page * PAGE;
    let end = (start + PAGE).min(file.on_host());
    start < end && (span.start > start || span.end < end)
}
