//! The interface of physical memory: who gets a page frame, and who has to give one back.

use crate::fcm::FileCacheRef;
use crate::frames::Frame;

/// What a pool of frames holds, and what reclaiming has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Frames in the budget.
    pub total: u64,
    /// Frames that no page has.
    pub free: u64,
    /// Frames whose page the file does not have yet as it is here.
    pub dirty: u64,
    /// Pages taken from caches by `reclaim`.
    pub evictions: u64,
    /// Dirty pages among the evictions: each was written back first.
    pub write_backs: u64,
}

/// The state of physical memory in the canonical protocol. Who has which frame stands in the frames'
/// descriptors, the free list in the pool: only counters and the hand are left to hand over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// Index of the frame that the search for victims looks at next.
    pub hand: u32,
    /// See [`MemoryStats::evictions`].
    pub evictions: u64,
    /// See [`MemoryStats::write_backs`].
    pub write_backs: u64,
}

/// The page frames that the files of one mount share, and the policy by which they get them.
#[refit_objects::interface(name = "pm", state = MemoryState)]
pub trait PhysicalMemory {
    /// Takes a frame from the free list for `page` of `owner`; `None` when there is none. The bytes of
    /// the frame are whatever they were: the caller writes all of them before anyone reads.
    fn allocate(&self, owner: FileCacheRef, page: u64) -> Option<Frame>;
    /// Puts a frame back on the free list. Only the cache that owns it may do so.
    fn free(&self, frame: Frame);
    /// The page in this frame has been used. Cheap enough for every access.
    fn touch(&self, frame: Frame);
    /// Evicts pages, of all files, until `wanted` frames have been freed or there is nothing left
    /// that can be evicted; how many have been freed. Called outside of any call of a file cache.
    ///
    /// Who repeats a call that had no frame asks for as many as the call touches pages. With fewer,
    /// the pages that its last attempt has filled can be all that is evicted, again and again.
    fn reclaim(&self, wanted: usize) -> usize;
    /// What is here, and what has been done.
    fn stats(&self) -> MemoryStats;
}
