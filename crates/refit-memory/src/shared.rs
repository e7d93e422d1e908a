//! The file cache `shared`: one representative for all processors, one lock, and as little memory
//! as possible (the `FCMSharedTrivial` of Hui 2000, §4.4.4).
//!
//! Best for files that are small or used by one thread at a time. The order in which calls take the
//! lock is the order in which they take effect: a call reads the file's size, copies, and changes
//! the size under one hold of it. The lock is dropped only where a page has to be filled, before
//! anything has been copied into the cache.
//!
//! `sequential` is the same for files that are read from front to back: each read drops the pages
//! that the reader has left behind, unless they are dirty (Soules 2003, §6.3). Other readers read
//! them again.

use std::sync::{Arc, OnceLock};

use refit_objects::OwnedRep;

use crate::cell::Cell;
use crate::fcm::{
    CacheError, CacheStats, Eviction, FileCache, FileCacheInterface, FileCacheRef, PAGE_SIZE,
};
use crate::frames::{BUSY, DIRTY, Frame, WRITING};
use crate::pages::{File, Span};
use crate::parts::CacheParts;
use crate::root::Cache;
use crate::whole;

/// The maximum number of pages behind a reader that each read drops: as many as one read can bring
/// in, and half as many again, for reads that overlap.
const BEHIND: u64 = 48;

/// A file cache with one lock, which keeps pages that have been read, or drops them behind the
/// reader.
#[derive(Debug)]
pub(crate) struct SharedCache<const KEEPS: bool> {
    file: File,
    cell: Cell,
    stripes: usize,
}

impl<const KEEPS: bool> SharedCache<KEEPS> {
    /// Creates the cache of an empty file, to which state may be imported. `owner` is set once the
    /// object exists to which the pages belong; until then no frames can be allocated. Once the
    /// index is large, it is divided as a cache with `partitions` would divide it.
    pub(crate) fn new(
        parts: CacheParts,
        owner: Arc<OnceLock<FileCacheRef>>,
        partitions: usize,
    ) -> Self {
        let (file, stripes) = (File::new(parts, owner), partitions.max(1));
        Self { file, cell: Cell::with_stripes(stripes), stripes }
    }
}

impl<const KEEPS: bool> Cache for SharedCache<KEEPS> {
    type Cell = Cell;
    const NAME: &'static str = if KEEPS { "shared" } else { "sequential" };

    fn file(&self) -> &File {
        &self.file
    }

    fn cells(&self) -> &[Cell] {
        std::slice::from_ref(&self.cell)
    }

    fn stripes(&self) -> usize {
        self.stripes
    }

    fn rep(self: Arc<Self>, _processor: usize) -> OwnedRep<FileCacheInterface> {
        FileCacheInterface::rep(SharedRep(self))
    }
}

/// The representative for all processors.
#[derive(Debug)]
struct SharedRep<const KEEPS: bool>(Arc<SharedCache<KEEPS>>);

impl<const KEEPS: bool> SharedRep<KEEPS> {
    /// Drops the pages behind a reader that has reached `offset`.
    fn leave_behind(&self, offset: u64) {
        let file = &self.0.file;
        let here = offset / PAGE_SIZE as u64;
        let mut pages = self.0.cell.lock();
        for page in here.saturating_sub(BEHIND)..here {
            let idle = |frame: &Frame| file.pool().flags(*frame) & (BUSY | DIRTY | WRITING) == 0;
            if pages.get(file, page).filter(idle).is_some() {
                pages.drop_page(file, page);
            }
        }
    }
}

impl<const KEEPS: bool> FileCache for SharedRep<KEEPS> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError> {
        let mut pages = self.0.cell.lock();
        pages.calls += 1;
        let read = self.0.cell.read(&self.0.file, pages, offset, buf);
        if !KEEPS && read.is_ok() {
            self.leave_behind(offset);
        }
        read
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError> {
        let Some(span) = Span::of(offset, data.len())? else { return Ok(0) };
        let mut pages = self.0.cell.lock();
        pages.calls += 1;
        self.0.cell.write(&self.0.file, pages, span, data)?;
        Ok(data.len())
    }

    fn truncate(&self, size: u64) -> Result<(), CacheError> {
        whole::truncate(&self.0.file, self.0.cells(), size)
    }

    fn size(&self) -> u64 {
        self.0.file.size()
    }

    fn is_dirty(&self) -> bool {
        whole::is_dirty(self.0.cells())
    }

    fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError> {
        whole::flush(&self.0.file, self.0.cells(), start, end)
    }

    fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError> {
        whole::invalidate(&self.0.file, self.0.cells(), start, end)
    }

    fn evict(&self, page: u64, frame: Frame) -> Result<Eviction, CacheError> {
        self.0.cell.evict(&self.0.file, page, frame)
    }

    fn discard(&self) {
        whole::discard(&self.0.file, self.0.cells());
    }

    fn stats(&self) -> CacheStats {
        whole::stats(&self.0.file, self.0.cells())
    }

    fn forget(&self, start: u64, end: u64) -> Result<(), CacheError> {
        whole::forget(&self.0.file, self.0.cells(), start, end)
    }
}
