//! The interface of a file cache manager: the cache of one file's pages (Hui 2000, §3.2).

use crate::frames::Frame;
use crate::index::{CachedPage, Layer};

pub use refit_sys::memory::PAGE_SIZE;

/// Maximum size of a file in bytes.
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;

/// The error of an operation of a file cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// No page frame is free: [`reclaim`](crate::reclaim) some *outside* of the cache, and call
    /// again.
    #[error("no page frame is free")]
    NoFrame,
    /// The file representative failed with this `errno`.
    #[error("the file could not be read or written: {}", std::io::Error::from_raw_os_error(*.0))]
    Host(i32),
}

/// Lets the wrapper `fault` make calls of a cache fail.
impl refit_objects::FromErrno for CacheError {
    fn from_errno(errno: i32) -> Self {
        CacheError::Host(errno)
    }
}

/// The result of an eviction that physical memory has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The page was evicted, and its frame is free.
    Freed,
    /// The page is in use, or no longer in the frame; try another one.
    Busy,
}

/// The contents and counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Size of the file in bytes.
    pub size: u64,
    /// Number of cached pages.
    pub resident: u64,
    /// Number of cached pages that differ from the file.
    pub dirty: u64,
    /// Number of calls of `read` and `write`.
    pub calls: u64,
    /// Number of pages that had to be read from the file.
    pub faults: u64,
}

/// The state of a file cache in the canonical protocol, which any file cache can export and import
/// (Hui 2000, §4.4.4, fig. 4.10). The pages' data stays in the frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Size of the file in bytes.
    pub size: u64,
    /// All cached pages, each once, in no particular order.
    pub pages: Vec<CachedPage>,
    /// See [`CacheStats::calls`]; continues across swaps.
    pub calls: u64,
    /// See [`CacheStats::faults`]; continues across swaps.
    pub faults: u64,
}

/// The state of a file cache in the protocols `stripes` and `lazy`: by reference, so that its size
/// does not matter.
#[derive(Clone, Debug, Default)]
pub struct CacheStripes {
    /// Size of the file in bytes.
    pub(crate) size: u64,
    /// The pages, their frames, and which are dirty. Shared with the cache that exports it until
    /// one of the two [relinquishes](refit_objects::Root::relinquish) it. Each layer has at least
    /// one stripe. There is one layer; `lazy` has more if the cache had not yet taken over all of
    /// its own pages.
    pub(crate) layers: Vec<Layer>,
    pub(crate) calls: u64,
    pub(crate) faults: u64,
}

/// The cache of one file, through which every read, write and mapping of the file goes.
///
/// A cache never calls another cache: it takes frames only from the free list and returns
/// [`CacheError::NoFrame`] when there is none, so that no two caches can wait for each other.
#[refit_objects::interface(
    name = "fcm",
    version = 2,
    state = CacheState,
    protocols(
        stripes = reference(CacheStripes),
        partitions = partitioned(CacheState),
        lazy = lazy(CacheStripes),
    )
)]
pub trait FileCache {
    /// Copies bytes from `offset` into `buf`. Returns their number, which is less than `buf.len()`
    /// only at the end of the file.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError>;
    /// Copies `data` to `offset` in the cache, and extends the file if it ends beyond. With
    /// `NoFrame` nothing is written. Repeating a call writes the same bytes to the same place.
    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError>;
    /// Sets the size of the file, here and on the host; bytes beyond the old size read as zero.
    fn truncate(&self, size: u64) -> Result<(), CacheError>;
    /// Returns the size of the file in bytes.
    fn size(&self) -> u64;
    /// Returns whether any page is dirty or the host does not have the current size.
    fn is_dirty(&self) -> bool;
    /// Writes dirty pages that overlap `[start, end)` to the file, without `fsync`. Returns their
    /// number.
    fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError>;
    /// Writes dirty pages that overlap `[start, end)` to the file, then drops all pages of that
    /// range, because the file is about to be changed by others. Reads the size from the file
    /// again.
    fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError>;
    /// Frees this frame for physical memory: writes its page back if it is dirty, and evicts it
    /// unless it is in use.
    fn evict(&self, page: u64, frame: Frame) -> Result<Eviction, CacheError>;
    /// Frees all frames without writing them, because the file no longer exists.
    fn discard(&self);
    /// Returns the contents and counters of the cache.
    fn stats(&self) -> CacheStats;
    /// Drops pages that overlap `[start, end)` without writing them, so that writes to them are
    /// lost. Reads the size from the file again.
    fn forget(&self, start: u64, end: u64) -> Result<(), CacheError>;
}
