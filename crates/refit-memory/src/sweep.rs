//! Physical memory whose frames form a circle: a hand passes them in turn, and a policy decides
//! which pages are evicted.
//!
//! The hand passes several frames at a time, shows the policy their marks, and names as victims
//! those that the policy gives up. Passing a frame clears its marks *new* and *used*, so that they
//! always refer to the time since the last pass. A search passes all frames twice. If the policy
//! has named no victim by then (a panic counts as naming none), a third round takes every page that
//! is not being filled or written: a loaded policy must not be able to halt a file server.
//!
//! Several threads may reclaim at the same time: they share the hand, so each looks at other
//! frames. The hand reads descriptors without any lock; the owner decides whether a frame is really
//! a victim when [`reclaim`](crate::reclaim) asks it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::fcm::FileCacheRef;
use crate::frames::{BUSY, DIRTY, FRESH, Frame, FramePool, REFERENCED, WRITING};
use crate::pm::{MemoryState, MemoryStats, PhysicalMemory, Search, Victim};
use crate::policy::{ReplacementPolicyRef, mark};

/// The maximum number of frames that the hand passes at once; their marks fit into a cache line.
const STRIDE: usize = 64;

/// The number of rounds in which the policy is asked.
const ROUNDS: usize = 2;

/// Physical memory that sweeps over its frames.
#[derive(Debug)]
pub(crate) struct SweepMemory {
    frames: Arc<FramePool>,
    pub(crate) policy: ReplacementPolicyRef,
    /// The number of frames that the hand has passed; its position is this modulo the number of
    /// frames.
    hand: AtomicUsize,
    evictions: AtomicU64,
    write_backs: AtomicU64,
}

impl SweepMemory {
    pub(crate) fn new(frames: Arc<FramePool>, policy: ReplacementPolicyRef) -> Self {
        Self {
            frames,
            policy,
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

    /// Implements [`PhysicalMemory::victims`].
    fn victims(&self, wanted: usize, search: &mut Search) -> Vec<Victim> {
        let all = self.frames.frames();
        let mut victims = Vec::new();
        while victims.len() < wanted {
            let round = search.looked_at / all;
            if round > ROUNDS || (round == ROUNDS && search.named > 0) {
                break;
            }
            // No more than can all be victims, and not beyond the end of the round.
            let rest = (round + 1) * all - search.looked_at;
            let stride = STRIDE.min(rest).min(wanted - victims.len());
            search.looked_at += stride;
            let start = self.hand.fetch_add(stride, Relaxed) % all;
            let before = victims.len();
            let wraps = (start + stride).saturating_sub(all);
            self.pass(start, stride - wraps, round, &mut victims);
            if wraps > 0 {
                self.pass(0, wraps, round, &mut victims);
            }
            search.named += victims.len() - before;
        }
        victims
    }

    /// Lets the hand pass `count` frames, at most [`STRIDE`].
    fn pass(&self, first: usize, count: usize, round: usize, victims: &mut Vec<Victim>) {
        let (mut marks, mut verdicts) = ([0; STRIDE], [0; STRIDE]);
        let (marks, verdicts) = (&mut marks[..count], &mut verdicts[..count]);
        let frames = || (first..first + count).filter_map(|index| self.frames.frame(index));
        for (frame, mark) in frames().zip(marks.iter_mut()) {
            *mark = self.look(frame);
        }
        if round < ROUNDS {
            let judge = || self.policy.judge(first as u32, marks, round as u32, verdicts);
            if catch_unwind(AssertUnwindSafe(judge)).is_err() {
                verdicts.fill(0);
            }
        } else {
            verdicts.fill(1);
        }
        for ((frame, mark), verdict) in frames().zip(marks).zip(verdicts) {
            if *verdict != 0 && *mark & mark::LOCKED == 0 {
                victims.push(Victim { frame, dirty: *mark & mark::DIRTY != 0 });
            }
        }
    }

    /// Returns the marks of a frame, and clears those that refer to the time since the hand last
    /// passed.
    fn look(&self, frame: Frame) -> u8 {
        let flags = self.frames.flags(frame);
        if flags & (REFERENCED | FRESH) != 0 {
            self.frames.clear(frame, REFERENCED | FRESH);
        }
        let marked = |flag, mark| if flags & flag != 0 { mark } else { 0 };
        let locked = flags & (BUSY | WRITING) != 0 || self.frames.is_free(frame);
        marked(FRESH, mark::NEW)
            | marked(REFERENCED, mark::USED)
            | marked(DIRTY, mark::DIRTY)
            | if locked { mark::LOCKED } else { 0 }
    }

    /// Implements [`PhysicalMemory::stats`].
    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            total: self.frames.frames() as u64,
            free: self.frames.free_frames() as u64,
            dirty: self.frames.dirty_frames() as u64,
            evictions: self.evictions.load(Relaxed),
            write_backs: self.write_backs.load(Relaxed),
        }
    }
}

/// The representative for all processors.
pub(crate) struct SweepRep(pub(crate) Arc<SweepMemory>);

impl PhysicalMemory for SweepRep {
    fn allocate(&self, owner: FileCacheRef, page: u64) -> Option<Frame> {
        self.0.frames.take(owner, page)
    }

    fn free(&self, frame: Frame) {
        self.0.frames.put(frame);
    }

    fn touch(&self, frame: Frame) {
        // Checking first keeps the descriptor's cache line shared while a page is hot.
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
