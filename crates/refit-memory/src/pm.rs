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
    /// Pages taken from caches by [`reclaim`](crate::reclaim).
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

/// A frame whose page looks as if it can be given up; its owner has the last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The frame.
    pub frame: Frame,
    /// Whether its page has to be written back first.
    pub dirty: bool,
}

/// How far one thread's search for victims has come: it goes over all frames twice, and once more if nobody was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Frames that the search has looked at.
    pub looked_at: usize,
    /// Victims that it has named.
    pub named: usize,
}

/// The page frames that the files of one mount share.
///
/// No method calls a cache or waits for anyone: caches call physical memory with their locks
/// held, and when it is swapped, the swap waits for every call that is inside. If one of them waited for a
/// cache, and that for a call that the swap holds up, neither would ever end. Whoever takes
/// frames back is therefore a plain function outside: [`reclaim`](crate::reclaim). The only object that is called is the
/// [policy](crate::ReplacementPolicy), which calls nobody, and only by `victims`, which no cache calls.
#[refit_objects::interface(name = "pm", state = MemoryState)]
pub trait PhysicalMemory {
    /// Takes a frame from the free list for `page` of `owner`; `None` when there is none. The bytes of
    /// the frame are whatever they were: the caller writes all of them before anyone reads.
    fn allocate(&self, owner: FileCacheRef, page: u64) -> Option<Frame>;
    /// Puts a frame back on the free list. Only the cache that owns it may do so.
    fn free(&self, frame: Frame);
    /// The page in this frame has been used. Cheap enough for every access.
    fn touch(&self, frame: Frame);
    /// Goes on with a search for victims until there are `wanted`, or it has seen everything it may;
    /// fewer than `wanted`, then, and none at last.
    fn victims(&self, wanted: usize, search: &mut Search) -> Vec<Victim>;
    /// So many pages have been evicted, so many of which were written back before.
    fn evicted(&self, pages: u64, write_backs: u64);
    /// What is here, and what has been done.
    fn stats(&self) -> MemoryStats;
}
