//! The file cache `shared`: one representative for all processors, one lock, as little memory as
//! possible (the `FCMSharedTrivial` of Hui 2000, §4.4.4).
//!
//! Best for files that are small or used by one thread at a time. The order in which calls take the
//! lock is the order in which they happen: a call looks at the file's size, copies, and changes the
//! size under one hold of it. Only where a page has to be filled is the lock dropped, before
//! anything has been copied into the cache.

use std::sync::{Arc, OnceLock};

use crate::cell::Cell;
use crate::factory::CacheParts;
use crate::fcm::{CacheError, CacheState, CacheStats, Evicted, FileCache};
use crate::frames::Frame;
use crate::pages::{File, Span};
use crate::shim::FileCacheRef;
use crate::whole;

/// A file cache with one lock.
#[derive(Debug)]
pub(crate) struct SharedCache {
    file: File,
    cell: Cell,
}

impl SharedCache {
    /// An empty cache of a file that has `size` bytes on the host. `owner` says, once it exists, to
    /// which object the pages belong; until then there are no frames.
    pub(crate) fn new(parts: CacheParts, owner: Arc<OnceLock<FileCacheRef>>, size: u64) -> Self {
        Self { file: File::new(parts, owner, size), cell: Cell::default() }
    }

    pub(crate) fn export(&self) -> CacheState {
        whole::export(&self.file, self.cells())
    }

    pub(crate) fn import(&self, state: &CacheState) {
        whole::import(&self.file, self.cells(), state, |_| 0);
    }

    fn cells(&self) -> &[Cell] {
        std::slice::from_ref(&self.cell)
    }
}

impl FileCache for SharedCache {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError> {
        let mut pages = self.cell.lock();
        pages.calls += 1;
        self.cell.read(&self.file, pages, offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError> {
        let Some(span) = Span::of(offset, data.len())? else { return Ok(0) };
        let mut pages = self.cell.lock();
        pages.calls += 1;
        self.cell.write(&self.file, pages, span, data)?;
        Ok(data.len())
    }

    fn truncate(&self, size: u64) -> Result<(), CacheError> {
        whole::truncate(&self.file, self.cells(), size)
    }

    fn size(&self) -> u64 {
        self.file.size()
    }

    fn is_dirty(&self) -> bool {
        whole::is_dirty(self.cells())
    }

    fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError> {
        whole::flush(&self.file, self.cells(), start, end)
    }

    fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError> {
        whole::invalidate(&self.file, self.cells(), start, end)
    }

    fn evict(&self, page: u64, frame: Frame) -> Result<Evicted, CacheError> {
        self.cell.evict(&self.file, page, frame)
    }

    fn discard(&self) {
        whole::discard(&self.file, self.cells());
    }

    fn stats(&self) -> CacheStats {
        whole::stats(&self.file, self.cells())
    }
}
