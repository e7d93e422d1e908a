//! The cached pages of one partition of a file, and the operations on them under its lock.
//!
//! ## Invariants while no thread holds the lock
//!
//! * **Zero tail.** Bytes of a page at or beyond the size of the file are zero, unless the page is
//!   [`BUSY`]. So extending the file does not touch its pages.
//! * **Size on the host.** All bytes of the host's file lie below `on_host`, which is at most the
//!   size. If it is less, the page with the last byte is cached and dirty or being written: writing
//!   all dirty pages back always gives the host's file the right size.
//! * **Dirty twice.** The index lists a page as dirty exactly if its descriptor has [`DIRTY`]. The
//!   index finds dirty pages in the order of the file; the descriptor informs physical memory.
//! * **Flights.** A page is [`BUSY`] or [`WRITING`] exactly if a *flight* covers it: a thread calls
//!   the host for this page without the lock, and *lands* the flight when the host has returned.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use refit_sys::memory::PAGE_SIZE_U64;

use crate::fcm::{CacheError, FileCacheRef, MAX_SIZE, PAGE_SIZE};
use crate::frames::{BUSY, DIRTY, Frame, FramePool};
use crate::lazy::LazyIndex;
use crate::parts::CacheParts;

/// The state that all pages of a file share.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) parts: CacheParts,
    /// The object that the pages belong to; set once the object has been created.
    pub(crate) owner: Arc<OnceLock<FileCacheRef>>,
    /// Size of the file in bytes. Raised under the lock of the page that contains the new last
    /// byte, lowered under all locks; so a thread that holds any lock sees a size that does not
    /// fall in the meantime. Relaxed: the locks order it with the bytes, and a load without a lock
    /// is a guess anyway.
    size: AtomicU64,
    /// See "Size on the host" in the module documentation. Changed like `size`.
    on_host: AtomicU64,
}

impl File {
    /// Creates an empty file.
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

    /// Extends the file to `end`. Requires the lock of the page with byte `end - 1`.
    pub(crate) fn grow(&self, end: u64) {
        self.size.fetch_max(end, Relaxed);
    }

    /// Records that the host's file is about to extend to `end`. Requires the lock of the page with
    /// byte `end - 1`.
    pub(crate) fn grow_on_host(&self, end: u64) {
        self.on_host.fetch_max(end, Relaxed);
    }

    /// Sets the size, here and on the host. Requires all locks.
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
    /// Returns the span of a write; `None` if there is nothing to write.
    pub(crate) fn of(offset: u64, len: usize) -> Result<Option<Self>, CacheError> {
        if len == 0 {
            return Ok(None);
        }
        let end = offset.checked_add(len as u64).filter(|&end| end <= MAX_SIZE);
        let end = end.ok_or(CacheError::Host(libc::EFBIG))?;
        Ok(Some(Self { start: offset, end }))
    }

    /// Returns the pages that the span overlaps.
    pub(crate) fn pages(self) -> RangeInclusive<u64> {
        self.start / PAGE_SIZE_U64..=(self.end - 1) / PAGE_SIZE_U64
    }

    /// Returns the part of the span that lies in `page`, as offsets in the page.
    pub(crate) fn within(self, page: u64) -> std::ops::Range<usize> {
        let base = page * PAGE_SIZE_U64;
        let from = self.start.max(base) - base;
        let to = self.end.min(base + PAGE_SIZE_U64) - base;
        from as usize..to as usize
    }
}

/// Returns the pages whose bytes overlap `[start, end)`; `None` if there are none.
pub(crate) fn pages_of(start: u64, end: u64) -> Option<RangeInclusive<u64>> {
    (start < end).then(|| start / PAGE_SIZE_U64..=(end - 1) / PAGE_SIZE_U64)
}

/// A run of pages for which a thread is calling the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of the flight within the partition.
    pub(crate) ticket: u64,
    pub(crate) writes: bool,
}

impl Flight {
    fn meets(&self, pages: &RangeInclusive<u64>) -> bool {
        self.first <= *pages.end() && *pages.start() <= self.last
    }
}

/// The reason that a write cannot proceed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A page is busy; the write has to wait for it.
    Busy,
    /// Part of this page keeps its contents from the file; the write has to fill it first.
    Unfilled(u64),
}

/// The pages of one partition, all of which one lock protects.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) index: LazyIndex,
    pub(crate) flights: Vec<Flight>,
    tickets: u64,
    /// The number of flights to the host that failed.
    pub(crate) failures: u64,
    /// The number of threads that wait for a flight to land.
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

    /// Returns the frame of a page that is about to be used or marked. If a lazy transfer has left
    /// the page behind, it moves now.
    pub(crate) fn demand(&mut self, file: &File, page: u64) -> Option<Frame> {
        self.index.demand(file.pool(), page)
    }

    /// Allocates a frame for `page`, marked busy, so that no other thread accesses it.
    pub(crate) fn add_busy(&mut self, file: &File, page: u64) -> Option<Frame> {
        let frame = file.allocate(page)?;
        file.pool().set(frame, BUSY);
        self.index.insert(file.pool(), frame);
        Some(frame)
    }

    /// Removes `page` and frees its frame, whatever its state.
    pub(crate) fn drop_page(&mut self, file: &File, page: u64) {
        if let Some(frame) = self.index.remove(file.pool(), page) {
            file.parts.pm.free(frame);
        }
    }

    /// Marks a page dirty, which must have been demanded.
    pub(crate) fn mark_dirty(&mut self, file: &File, page: u64, frame: Frame) {
        if file.pool().flags(frame) & DIRTY == 0 {
            file.pool().set(frame, DIRTY);
            self.index.mark_dirty(page);
        }
    }

    /// Marks a page clean, which must have been demanded.
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
            // An idle cache keeps no memory for flights.
            self.flights = Vec::new();
        }
    }

    pub(crate) fn last_ticket(&self) -> u64 {
        self.tickets
    }

    /// Returns whether a flight covers one of `pages`.
    pub(crate) fn in_flight(&self, pages: &RangeInclusive<u64>) -> bool {
        self.flights.iter().any(|flight| flight.meets(pages))
    }

    /// Returns whether a flight to the host that began no later than `ticket` covers one of
    /// `pages`.
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

    /// Returns the end of the last dirty page, or of the file if that is before; 0 without dirty
    /// pages.
    pub(crate) fn dirty_end(&self, file: &File) -> u64 {
        self.index.last_dirty().map_or(0, |page| ((page + 1) * PAGE_SIZE_U64).min(file.size()))
    }

    /// Returns the number of dirty pages, including those being written to the host.
    pub(crate) fn dirty_pages(&self, file: &File) -> u64 {
        let writing = |flight: &&Flight| flight.writes;
        let clean = |page: &u64| {
            self.get(file, *page).is_some_and(|frame| file.pool().flags(frame) & DIRTY == 0)
        };
        let runs = self.flights.iter().filter(writing).flat_map(|f| f.first..=f.last);
        (self.index.dirty() + runs.filter(clean).count()) as u64
    }

    /// Returns the first obstacle that keeps `span` from being written now.
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

    /// Allocates frames, marked busy, for the pages of `span` that are not cached: all of them or
    /// none. There must be no obstacle.
    pub(crate) fn claim(&mut self, file: &File, span: Span) -> Result<(), CacheError> {
        for page in span.pages() {
            if self.get(file, page).is_none() && self.add_busy(file, page).is_none() {
                self.unclaim(file, span);
                return Err(CacheError::NoFrame);
            }
        }
        Ok(())
    }

    /// Undoes `claim`. Called under the same lock, so that the only busy pages are those of
    /// `claim`.
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

    /// Returns those of `pages` that are cached, in no particular order.
    pub(crate) fn here(&self, file: &File, pages: &RangeInclusive<u64>) -> Vec<u64> {
        if pages.end() - pages.start() < self.index.len() as u64 {
            pages.clone().filter(|&page| self.get(file, page).is_some()).collect()
        } else {
            let page = |frame| file.pool().page(frame);
            self.index.frames().map(page).filter(|page| pages.contains(page)).collect()
        }
    }

    /// Drops `pages`, none of which may be in flight.
    pub(crate) fn forget(&mut self, file: &File, pages: &RangeInclusive<u64>) {
        debug_assert!(!self.in_flight(pages), "a page in flight is not forgotten");
        for page in self.here(file, pages) {
            self.drop_page(file, page);
        }
    }

    /// Truncates the pages to a file of `size` bytes: frees pages beyond it, and zeroes the tail of
    /// the last. None of them may be in flight.
    pub(crate) fn cut(&mut self, file: &File, size: u64) {
        if let Some(beyond) = pages_of(size.next_multiple_of(PAGE_SIZE_U64), u64::MAX) {
            self.forget(file, &beyond);
        }
        let tail = (size % PAGE_SIZE_U64) as usize;
        if tail != 0
            && let Some(frame) = self.get(file, size / PAGE_SIZE_U64)
        {
            file.pool().zero(frame, tail..PAGE_SIZE);
        }
    }
}

/// Returns whether a write of `span` leaves bytes of `page` that only the host has.
fn needs_fill(file: &File, span: Span, page: u64) -> bool {
    let start = page * PAGE_SIZE_U64;
    let end = (start + PAGE_SIZE_U64).min(file.on_host());
    start < end && (span.start > start || span.end < end)
}
