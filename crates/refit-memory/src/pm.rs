//! The interface of physical memory, which allocates page frames and names those to reclaim.

use crate::fcm::FileCacheRef;
use crate::frames::Frame;

/// The contents of a pool of frames, and the counters of reclaiming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Number of frames in the budget.
    pub total: u64,
    /// Number of free frames.
    pub free: u64,
    /// Number of frames whose page differs from the file.
    pub dirty: u64,
    /// Number of pages that [`reclaim`](crate::reclaim) has evicted from caches.
    pub evictions: u64,
    /// Number of those that were dirty, and were written back first.
    pub write_backs: u64,
}

/// The state of physical memory in the canonical protocol. Owners are in the frames' descriptors
/// and the free list is in the pool, so only the counters and the hand have to be transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// Index of the frame that the search for victims examines next.
    pub hand: u32,
    /// See [`MemoryStats::evictions`].
    pub evictions: u64,
    /// See [`MemoryStats::write_backs`].
    pub write_backs: u64,
}

/// A frame whose page appears to be evictable; its owner decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The frame.
    pub frame: Frame,
    /// Whether its page has to be written back first.
    pub dirty: bool,
}

/// The progress of one thread's search for victims, which passes all frames twice, and a third time
/// if it has named no victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Number of frames that the search has examined.
    pub looked_at: usize,
    /// Number of victims that it has named.
    pub named: usize,
}

/// The page frames that the files of one mount share.
///
/// No method calls a cache or waits for another thread: caches call physical memory with their
/// locks held, and a swap of physical memory waits for every call in progress. If one of those
/// calls waited for a cache, and that cache for a call that the swap delays, neither would ever
/// end. Frames are therefore reclaimed by a plain function outside: [`reclaim`](crate::reclaim).
/// The only object that is called is the [policy](crate::ReplacementPolicy), which calls no object;
/// only `victims` calls it, and no cache calls `victims`.
#[refit_objects::interface(name = "pm", state = MemoryState)]
pub trait PhysicalMemory {
    /// Allocates a frame for `page` of `owner`; `None` if there is none. The contents of the frame
    /// are arbitrary: the caller has to write all of it before anyone reads.
    fn allocate(&self, owner: FileCacheRef, page: u64) -> Option<Frame>;
    /// Returns a frame to the free list. Only the cache that owns it may do so.
    fn free(&self, frame: Frame);
    /// Records a use of the page in this frame. Cheap enough for every access.
    fn touch(&self, frame: Frame);
    /// Continues a search for victims until there are `wanted` of them or the search has examined
    /// all that it may. Returns the victims; none once the search is exhausted.
    fn victims(&self, wanted: usize, search: &mut Search) -> Vec<Victim>;
    /// Records that this number of pages has been evicted, and how many of those were written back
    /// before.
    fn evicted(&self, pages: u64, write_backs: u64);
    /// Returns the contents and counters.
    fn stats(&self) -> MemoryStats;
}
