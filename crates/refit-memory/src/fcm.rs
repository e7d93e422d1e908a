//! The interface of a file cache manager: the cache of one file's pages (Hui 2000, §3.2).

use crate::frames::Frame;
use crate::index::Layer;

/// Bytes in a page and in a page frame.
pub const PAGE_SIZE: usize = 4096;

/// Largest size of a file in bytes.
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;

/// Why a file cache could not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// There is no free page frame: [`reclaim`](crate::reclaim) some *outside* of the cache, call again.
    #[error("no page frame is free")]
    NoFrame,
    /// The file representative failed with this `errno`.
    #[error("the file could not be read or written: {}", std::io::Error::from_raw_os_error(*.0))]
    Host(i32),
}

/// So that the wrapper `fault` can let calls of a cache fail.
impl refit_objects::FromErrno for CacheError {
    fn from_errno(errno: i32) -> Self {
        CacheError::Host(errno)
    }
}

/// What became of a page that physical memory asked back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The frame has been freed.
    Freed,
    /// The page is busy or not here any more; try another one.
    Busy,
}

/// What a cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Size of the file in bytes.
    pub size: u64,
    /// Pages that are cached.
    pub resident: u64,
    /// Pages that the file does not have yet as they are here.
    pub dirty: u64,
    /// Calls of `read` and `write`.
    pub calls: u64,
    /// Pages that had to be read from the file.
    pub faults: u64,
}

/// A page in the canonical state: the frame keeps the data, wherever the state goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPage {
    /// Number of the page in the file.
    pub page: u64,
    /// The frame that has it.
    pub frame: Frame,
    /// Whether the file does not have it yet as it is here.
    pub dirty: bool,
}

/// The state of a file cache in the canonical protocol: what any file cache can export and import
/// (Hui 2000, §4.4.4, fig. 4.10). The pages' data stays where it is, in the frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Size of the file in bytes.
    pub size: u64,
    /// Every page that is here, once, in no order.
    pub pages: Vec<CachedPage>,
    /// Counters that go on counting.
    pub calls: u64,
    /// See [`CacheStats::faults`].
    pub faults: u64,
}

/// The state of a file cache in the protocols `stripes` and `lazy`: by reference, so that its size does not matter.
#[derive(Clone, Debug, Default)]
pub struct CacheStripes {
    /// Size of the file in bytes.
    pub(crate) size: u64,
    /// Which pages are in which frames, and which of them are dirty; shared with the cache that exports it,
    /// until one of the two [lets go](refit_objects::Root::relinquish). Each layer has a stripe at least. There is
    /// one layer; `lazy` has more where the cache had not got all of its own pages yet.
    pub(crate) layers: Vec<Layer>,
    pub(crate) calls: u64,
    pub(crate) faults: u64,
}

/// The cache of one file. Every read, write and mapping of the file meets here.
///
/// A cache never calls another cache: it takes frames only from the free list and answers
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
    /// Copies bytes from `offset` into `buf`; fewer than `buf.len()` only at the end of the file.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError>;
    /// Copies `data` to `offset` into the cache and grows the file if it ends beyond. All or nothing with
    /// `NoFrame`: a call that is repeated writes the same bytes to the same place.
    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError>;
    /// Sets the size of the file, here and on the host; bytes beyond the old size read as zero.
    fn truncate(&self, size: u64) -> Result<(), CacheError>;
    /// Size of the file in bytes.
    fn size(&self) -> u64;
    /// Whether any page is dirty or the size is not on the host yet.
    fn is_dirty(&self) -> bool;
    /// Writes dirty pages that overlap `[start, end)` to the file; how many. Does not `fsync`.
    fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError>;
    /// Writes dirty pages that overlap `[start, end)` to the file, then forgets them: the file is about to be
    /// changed underneath. Takes the size from the file again.
    fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError>;
    /// Physical memory wants this frame back: write it if it is dirty, free it unless it is busy.
    fn evict(&self, page: u64, frame: Frame) -> Result<Evicted, CacheError>;
    /// Frees all frames without writing them: the file is gone.
    fn discard(&self);
    /// What is here, and what has been done.
    fn stats(&self) -> CacheStats;
    /// Forgets pages that overlap `[start, end)` without writing them: what was written there is given up. Takes the
    /// size from the file again.
    fn forget(&self, start: u64, end: u64) -> Result<(), CacheError>;
}
