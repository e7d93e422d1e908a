//! The file cache `partitioned`: the pages of a file spread over the processors, with a lock each
//! (the `FCMPartitionedTrivial` of Hui 2000, §4.4.4).
//!
//! The file is divided into ranges of [`RANGE_PAGES`] pages, which are assigned in turn: the pages
//! of range *r* are in partition *r* mod *n*. Each processor's representative has a partition, with
//! its lock and table in cache lines of its own, so that threads which work on different parts of a
//! file do not contend. A representative serves calls for any page; it takes the lock of the page's
//! partition, its own or another's.
//!
//! * `read` takes the locks it needs one after the other: a read across ranges may see one part
//!   before and one part after another thread's write. Within a range that happens only if a page
//!   has to be filled during the read; it never happens within a page.
//! * `write` holds all the locks it needs, taken in ascending order, while it copies and raises the
//!   size. So it is atomic with respect to `truncate`, and no page of it is written back or
//!   truncated between the copying and the new size.
//! * The size is raised under the lock of the last page written and lowered under all locks: see
//!   [`File`].
//! * `truncate`, `invalidate` and `discard` hold all locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use refit_objects::OwnedRep;

use crate::cell::{Cell, Guard};
use crate::fcm::{
    CacheError, CacheStats, Eviction, FileCache, FileCacheInterface, FileCacheRef, PAGE_SIZE,
};
use crate::frames::Frame;
use crate::index::{RANGE_PAGES, stripe_of};
use crate::pages::{File, Obstacle, Span};
use crate::parts::CacheParts;
use crate::root::Cache;
use crate::whole;

const RANGE_BYTES: u64 = RANGE_PAGES * PAGE_SIZE as u64;

/// The part of a file cache that belongs to one processor's representative.
#[derive(Debug, Default)]
struct Partition {
    cell: Cell,
    /// Calls that arrived at this representative for pages of another partition.
    remote: AtomicU64,
}

/// A partition, aligned so that it has its own cache lines.
#[derive(Debug, Default)]
pub(crate) struct Padded(CachePadded<Partition>);

impl AsRef<Cell> for Padded {
    fn as_ref(&self) -> &Cell {
        &self.0.cell
    }
}

/// A file cache with a lock for each of its partitions.
#[derive(Debug)]
pub(crate) struct PartitionedCache {
    file: File,
    partitions: Box<[Padded]>,
}

impl PartitionedCache {
    /// Creates an empty cache with `partitions` partitions, at least one; otherwise as
    /// [`SharedCache::new`](crate::shared::SharedCache::new).
    pub(crate) fn new(
        parts: CacheParts,
        owner: Arc<OnceLock<FileCacheRef>>,
        partitions: usize,
    ) -> Self {
        let partitions = (0..partitions.max(1)).map(|_| Padded::default()).collect();
        Self { file: File::new(parts, owner), partitions }
    }

    fn partition_of(&self, page: u64) -> usize {
        stripe_of(page, self.partitions.len())
    }

    fn index_of(&self, span: Span) -> usize {
        self.partition_of(*span.pages().start())
    }

    fn cell(&self, index: usize) -> &Cell {
        &self.partitions[index].0.cell
    }

    fn read(&self, home: usize, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError> {
        let end = offset.saturating_add(buf.len() as u64).min(self.file.size());
        if offset >= end {
            self.cell(home).lock().calls += 1;
            return Ok(0);
        }
        let mut done = 0;
        for span in ranges(Span { start: offset, end }) {
            let index = self.index_of(span);
            let mut pages = self.cell(index).lock();
            if done == 0 {
                pages.calls += 1;
                self.note(home, index);
            }
            let len = (span.end - span.start) as usize;
            let got =
                self.cell(index).read(&self.file, pages, span.start, &mut buf[done..][..len])?;
            done += got;
            if got < len {
                break;
            }
        }
        Ok(done)
    }

    fn write(&self, home: usize, offset: u64, data: &[u8]) -> Result<usize, CacheError> {
        let Some(span) = Span::of(offset, data.len())? else { return Ok(0) };
        let index = self.index_of(span);
        self.note(home, index);
        if span.start / RANGE_BYTES == (span.end - 1) / RANGE_BYTES {
            let cell = self.cell(index);
            let mut pages = cell.lock();
            pages.calls += 1;
            cell.write(&self.file, pages, span, data)?;
        } else {
            self.cell(index).lock().calls += 1;
            self.write_across(span, data)?;
        }
        Ok(data.len())
    }

    /// Writes to several ranges, holding the locks of all their partitions.
    fn write_across(&self, span: Span, data: &[u8]) -> Result<(), CacheError> {
        loop {
            let mut held = self.lock_all_of(span);
            if let Some((index, obstacle)) = self.obstacle(&held, span) {
                let guard = held.take(index);
                // No other lock is held while this thread waits or fills.
                drop(held);
                drop(self.cell(index).clear(&self.file, guard, obstacle)?);
                continue;
            }
            for part in ranges(span) {
                let claimed = held.pages(self.index_of(part)).claim(&self.file, part);
                if let Err(error) = claimed {
                    for part in ranges(span) {
                        held.pages(self.index_of(part)).unclaim(&self.file, part);
                    }
                    return Err(error);
                }
            }
            for part in ranges(span) {
                let bytes = (part.start - span.start) as usize..(part.end - span.start) as usize;
                held.pages(self.index_of(part)).store(&self.file, part, &data[bytes]);
            }
            return Ok(());
        }
    }

    /// Locks the partitions of `span`, in ascending order.
    fn lock_all_of(&self, span: Span) -> LockSet<'_> {
        let mut wanted = vec![false; self.partitions.len()];
        ranges(span).take(wanted.len()).for_each(|part| wanted[self.index_of(part)] = true);
        let lock = |(index, wanted): (usize, bool)| wanted.then(|| self.cell(index).lock());
        LockSet(wanted.into_iter().enumerate().map(lock).collect())
    }

    fn obstacle(&self, held: &LockSet<'_>, span: Span) -> Option<(usize, Obstacle)> {
        ranges(span).find_map(|part| {
            let index = self.index_of(part);
            let pages = held.0[index].as_ref()?;
            Some((index, pages.obstacle(&self.file, part)?))
        })
    }

    fn note(&self, home: usize, index: usize) {
        if home != index {
            self.partitions[home].0.remote.fetch_add(1, Relaxed);
        }
    }
}

impl Cache for PartitionedCache {
    type Cell = Padded;
    const NAME: &'static str = "partitioned";

    fn file(&self) -> &File {
        &self.file
    }

    fn cells(&self) -> &[Padded] {
        &self.partitions
    }

    fn stripes(&self) -> usize {
        self.partitions.len()
    }

    fn cluster(&self, processor: usize) -> usize {
        processor % self.partitions.len()
    }

    fn rep(self: Arc<Self>, processor: usize) -> OwnedRep<FileCacheInterface> {
        let home = self.cluster(processor);
        FileCacheInterface::rep(PartitionedRep { cache: self, home })
    }

    /// Returns the counters of this implementation; remote calls are those that arrived on one
    /// processor for the partition of another.
    fn own_stats(&self) -> Vec<(&'static str, u64)> {
        let remote = self.partitions.iter().map(|padded| padded.0.remote.load(Relaxed));
        vec![("partitions", self.partitions.len() as u64), ("remote_calls", remote.sum())]
    }
}

/// The locks that a call holds, by partition.
struct LockSet<'a>(Vec<Option<Guard<'a>>>);

impl<'a> LockSet<'a> {
    fn pages(&mut self, index: usize) -> &mut Guard<'a> {
        self.0[index].as_mut().unwrap_or_else(|| unreachable!("partition {index} is locked"))
    }

    fn take(&mut self, index: usize) -> Guard<'a> {
        self.0[index].take().unwrap_or_else(|| unreachable!("partition {index} is locked"))
    }
}

/// Splits a span at the boundaries of ranges.
fn ranges(span: Span) -> impl Iterator<Item = Span> {
    let cut = move |range: u64| Span {
        start: span.start.max(range * RANGE_BYTES),
        end: span.end.min((range + 1) * RANGE_BYTES),
    };
    (span.start / RANGE_BYTES..=(span.end - 1) / RANGE_BYTES).map(cut)
}

/// The representative of one processor, with the number of its own partition.
#[derive(Debug)]
struct PartitionedRep {
    cache: Arc<PartitionedCache>,
    home: usize,
}

impl FileCache for PartitionedRep {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError> {
        self.cache.read(self.home, offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError> {
        self.cache.write(self.home, offset, data)
    }

    fn truncate(&self, size: u64) -> Result<(), CacheError> {
        whole::truncate(&self.cache.file, &self.cache.partitions, size)
    }

    fn size(&self) -> u64 {
        self.cache.file.size()
    }

    fn is_dirty(&self) -> bool {
        whole::is_dirty(&self.cache.partitions)
    }

    fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError> {
        whole::flush(&self.cache.file, &self.cache.partitions, start, end)
    }

    fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError> {
        whole::invalidate(&self.cache.file, &self.cache.partitions, start, end)
    }

    fn evict(&self, page: u64, frame: Frame) -> Result<Eviction, CacheError> {
        self.cache.cell(self.cache.partition_of(page)).evict(&self.cache.file, page, frame)
    }

    fn discard(&self) {
        whole::discard(&self.cache.file, &self.cache.partitions);
    }

    fn stats(&self) -> CacheStats {
        whole::stats(&self.cache.file, &self.cache.partitions)
    }

    fn forget(&self, start: u64, end: u64) -> Result<(), CacheError> {
        whole::forget(&self.cache.file, &self.cache.partitions, start, end)
    }
}
