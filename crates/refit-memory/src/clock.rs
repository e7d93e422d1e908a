//! Physical memory by CLOCK: the frames stand in a circle, a hand goes round, and a page that has
//! been used since the hand last came by gets a second chance.
//!
//! The first time round the hand takes clean pages only: they cost nothing to give up. If that is not
//! enough, it goes round once more and has dirty pages written back, too. After two rounds whatever
//! is left is in use or cannot be written, and the caller has to live with what there is.
//!
//! Several threads may reclaim at once: they share the hand, so each looks at other frames. The hand
//! reads descriptors without any lock; whether a frame is really a victim the owner decides when
//! [`reclaim`](crate::reclaim) asks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::fcm::FileCacheRef;
use crate::frames::{BUSY, DIRTY, Frame, FramePool, REFERENCED, WRITING};
use crate::pm::{MemoryState, MemoryStats, PhysicalMemory, Search, Victim};

/// Pages with one of these marks are never victims.
const IN_USE: u32 = REFERENCED | BUSY | WRITING;

/// Physical memory with the CLOCK policy.
#[derive(Debug)]
pub(crate) struct ClockMemory {
    frames: Arc<FramePool>,
    /// Frames that the hand has passed; it stands at this number modulo the number of frames.
    hand: AtomicUsize,
    evictions: AtomicU64,
    write_backs: AtomicU64,
}

impl ClockMemory {
    pub(crate) fn new(frames: Arc<FramePool>) -> Self {
        Self {
            frames,
            hand: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
            write_backs: AtomicU64::new(0),
        }
    }

    pub(crate) fn export(&self) -> MemoryState {
        MemoryState {
            hand: (self.hand.load(Relaxed) % self.frames.frames()) as u32,
            evictions: self.evictions.load(Relaxed),
            write_backs: self.write_backs.load(Relaxed),
        }
    }

    pub(crate) fn import(&self, state: &MemoryState) {
        self.hand.store(state.hand as usize, Relaxed);
        self.evictions.store(state.evictions, Relaxed);
        self.write_backs.store(state.write_backs, Relaxed);
    }

    /// See [`PhysicalMemory::victims`].
    fn victims(&self, wanted: usize, search: &mut Search) -> Vec<Victim> {
        let round = self.frames.frames();
        let mut victims = Vec::new();
        while victims.len() < wanted && search.looked_at < 2 * round {
            let spare = if search.looked_at < round { IN_USE | DIRTY } else { IN_USE };
            search.looked_at += 1;
            victims.extend(self.advance(spare));
        }
        victims
    }

    /// See [`PhysicalMemory::stats`].
    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            total: self.frames.frames() as u64,
            free: self.frames.free_frames() as u64,
            dirty: self.frames.dirty_frames() as u64,
            evictions: self.evictions.load(Relaxed),
            write_backs: self.write_backs.load(Relaxed),
        }
    }

    /// Moves the hand on; the frame it stood at, if its page can be a victim in this round.
    fn advance(&self, spare: u32) -> Option<Victim> {
        let index = self.hand.fetch_add(1, Relaxed) % self.frames.frames();
        let frame = self.frames.frame(index)?;
        let flags = self.frames.flags(frame);
        if flags & REFERENCED != 0 {
            self.frames.clear(frame, REFERENCED);
        }
        let candidate = flags & spare == 0 && !self.frames.is_free(frame);
        candidate.then_some(Victim { frame, dirty: flags & DIRTY != 0 })
    }
}

/// The representative for all processors.
pub(crate) struct ClockRep(pub(crate) Arc<ClockMemory>);

impl PhysicalMemory for ClockRep {
    fn allocate(&self, owner: FileCacheRef, page: u64) -> Option<Frame> {
        self.0.frames.take(owner, page)
    }

    fn free(&self, frame: Frame) {
        self.0.frames.put(frame);
    }

    fn touch(&self, frame: Frame) {
        // Looking first keeps the descriptor's cache line shared while a page is hot.
        if self.0.frames.flags(frame) & REFERENCED == 0 {
            self.0.frames.set(frame, REFERENCED);
        }
    }

    fn victims(&self, wanted: usize, search: &mut Search) -> Vec<Victim> {
        self.0.victims(wanted, search)
    }

    fn evicted(&self, pages: u64, write_backs: u64) {
        self.0.evictions.fetch_add(pages, Relaxed);
        self.0.write_backs.fetch_add(write_backs, Relaxed);
    }

    fn stats(&self) -> MemoryStats {
        self.0.stats()
    }
}
