//! The page frames: a pool in one memfd, and a descriptor for each frame.
//!
//! ## Access to the bytes of a frame
//!
//! The bytes are raw memory without a lock of their own. The bytes of a frame that belongs to a
//! page are accessed only (1) under the lock of the page's partition in its cache, while the page
//! is not [`BUSY`], or (2) without the lock, by the thread that has set [`BUSY`], until it clears
//! it under the lock again. No thread accesses the bytes of a free frame. The functions that copy
//! bytes are private to this crate, so that only its code has to follow these rules.
//!
//! ## Access to a descriptor
//!
//! Owner and page are set when the frame leaves the free list, and do not change until it returns
//! there. In between only the owner changes the flags, under the lock of the page's partition. The
//! exceptions are two hints: any thread may set [`REFERENCED`], and the search for victims clears
//! [`REFERENCED`] and [`FRESH`]. Other threads read descriptors without a lock, so the values that
//! they read are guesses: before they act on one they call the owner, which checks again under its
//! lock ([`FileCache::evict`](crate::FileCache::evict)). Hence all accesses are relaxed: the
//! owner's are ordered by its lock, and a guess needs no order.
//!
//! Host memory is allocated when a frame is first written. Frames that have just been freed are
//! allocated first, while they are warm in the cache. [`FramePool::trim`] returns free frames to
//! the host.
//!
//! ## Locks, in the order in which they are taken
//!
//! | lock | protects |
//! |---|---|
//! | `visitors` | the existence of caches found in descriptors; held shared while one is called |
//! | a partition's lock | see above |
//! | `free` | the list of free frames; nothing is called with it held |

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard, RwLock};
use refit_sys::memory::{PAGE_SIZE, SharedMapping};
use refit_sys::word_table::WordTable;

/// A page frame, by its index in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(u32);

const NONE: u32 = u32::MAX;

impl Frame {
    /// A placeholder where no frame is stored.
    pub(crate) const UNSET: Self = Self(NONE);

    pub(crate) fn word(self) -> u32 {
        self.0
    }

    pub(crate) fn from_word(word: u32) -> Option<Self> {
        (word != NONE).then_some(Self(word))
    }

    /// Returns the index of the frame in its pool.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The page differs from the file.
pub(crate) const DIRTY: u32 = 1;
/// The page is being filled: only the thread that has set the flag accesses its bytes.
pub(crate) const BUSY: u32 = 2;
/// The page has been used since the search for victims last passed.
pub(crate) const REFERENCED: u32 = 4;
/// A copy of the page is being written to the file: the page may be used, but not written back a
/// second time, evicted or truncated until that is done.
pub(crate) const WRITING: u32 = 8;
/// The search for victims has not passed since the frame left the free list. A hint, like
/// [`REFERENCED`].
pub(crate) const FRESH: u32 = 16;

/// The state of a frame, as words of a [`WordTable`].
pub(crate) type Descriptor = [AtomicU64; 3];

/// The word of a [`Descriptor`] that holds the cache that owns the frame, as a word; 0 while it is
/// free.
pub(crate) const OWNER: usize = 0;
/// The word that holds the page.
pub(crate) const PAGE: usize = 1;
/// The word that holds the flags.
pub(crate) const FLAGS: usize = 2;

/// Bytes that a pool keeps for each frame in addition to the frame itself: its descriptor, and its
/// place on the free list.
pub(crate) const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>() + size_of::<AtomicU32>();
const _: () = assert!(DESCRIPTOR_BYTES <= 32);

/// The free frames, linked through `next` of the pool, the most recently freed one on top.
#[derive(Debug)]
struct FreeList {
    top: u32,
    len: u32,
    /// Frames from this index on have never been used and are not linked.
    fresh: u32,
}

/// All page frames of a budget.
#[derive(Debug)]
pub struct FramePool {
    pub(crate) memory: SharedMapping,
    pub(crate) descriptors: WordTable,
    /// For each frame on the free list, the next one.
    next: Box<[AtomicU32]>,
    /// The frames that belong to no page.
    free: Mutex<FreeList>,
    /// Held for reading while a thread calls a cache that it has found in a descriptor.
    pub(crate) visitors: RwLock<()>,
}

impl FramePool {
    /// Creates a pool of as many whole frames as fit into `bytes`, but at least one.
    ///
    /// A `write` is all or nothing, so the pool should have room for the largest writes that all
    /// threads make at the same time; see `docs/internals/memory.md`.
    ///
    /// # Errors
    /// The host's error if it has no such memory, or `InvalidInput` for more than 2³² - 1 frames.
    pub fn new(bytes: u64) -> io::Result<Arc<Self>> {
        let frames = (bytes / PAGE_SIZE as u64).max(1);
        let frames = u32::try_from(frames).ok().filter(|&n| n != NONE).ok_or_else(|| {
            let what = format!("{bytes} bytes are more frames than a pool can count");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })? as usize;
        let memory = SharedMapping::new(c"refit-frames", frames * PAGE_SIZE)?;
        let words = frames * size_of::<Descriptor>() / size_of::<AtomicU64>();
        let descriptors = WordTable::new(c"refit-frame-descriptors", words)?;
        let next = std::iter::repeat_with(|| AtomicU32::new(NONE)).take(frames).collect();
        let free = Mutex::new(FreeList { top: NONE, len: 0, fresh: 0 });
        Ok(Arc::new(Self { memory, descriptors, next, free, visitors: RwLock::new(()) }))
    }

    /// Returns the descriptors of all frames, by index.
    fn descriptors(&self) -> &[Descriptor] {
        self.descriptors.words().as_chunks().0
    }

    fn descriptor(&self, frame: Frame) -> &Descriptor {
        &self.descriptors()[frame.index()]
    }

    /// Returns the number of frames in the pool.
    pub fn frames(&self) -> usize {
        self.next.len()
    }

    /// Returns the number of free frames.
    pub fn free_frames(&self) -> usize {
        let free = self.free_list();
        free.len as usize + self.next.len() - free.fresh as usize
    }

    /// Returns the frame with this index.
    pub fn frame(&self, index: usize) -> Option<Frame> {
        (index < self.next.len()).then_some(Frame(index as u32))
    }

    /// Returns whether `frame` is free. A guess, like [`owner`](Self::owner).
    pub(crate) fn is_free(&self, frame: Frame) -> bool {
        self.descriptor(frame)[OWNER].load(Relaxed) == 0
    }

    /// Returns the word of the cache that owns `frame`; 0 while it is free.
    pub(crate) fn owner_word(&self, frame: Frame) -> u64 {
        self.descriptor(frame)[OWNER].load(Relaxed)
    }

    /// Returns the words of the caches that own dirty pages, each with a frame of one of them.
    pub(crate) fn dirty_owners(&self) -> BTreeMap<u64, Frame> {
        let mut caches = BTreeMap::new();
        for (index, descriptor) in self.descriptors().iter().enumerate() {
            if has(descriptor, DIRTY) {
                caches.insert(descriptor[OWNER].load(Relaxed), Frame(index as u32));
            }
        }
        caches
    }

    /// Returns the number of frames whose page is dirty.
    pub fn dirty_frames(&self) -> usize {
        let dirty = |descriptor: &&Descriptor| has(descriptor, DIRTY);
        self.descriptors().iter().filter(dirty).count()
    }

    /// Returns whether any page is being read from its file or written to it, whose frame will be
    /// clean afterwards.
    pub fn any_in_flight(&self) -> bool {
        self.descriptors().iter().any(|descriptor| has(descriptor, BUSY | WRITING))
    }

    /// Returns the memory of free frames to the host, except for the `keep` that are allocated
    /// next. Returns the number of frames whose memory was returned.
    ///
    /// # Errors
    /// The host's error; the frames stay free.
    pub fn trim(&self, keep: usize) -> io::Result<usize> {
        let mut taken = Vec::new();
        {
            let mut free = self.free_list();
            while free.len > 0 {
                taken.push(self.pop(&mut free));
            }
        }
        // The frames popped first are the next to be allocated, and stay; the coldest are returned.
        let cold = taken.split_off(keep.min(taken.len()));
        let result = self.give_back(&cold);
        let mut free = self.free_list();
        for &frame in cold.iter().rev().chain(taken.iter().rev()) {
            self.push(&mut free, frame);
        }
        result.map(|()| cold.len())
    }

    /// Takes a free frame for a page of the cache `owner`, a word that is not 0.
    pub(crate) fn take_for(&self, owner: u64, page: u64) -> Option<Frame> {
        let frame = {
            let mut free = self.free_list();
            if free.len > 0 {
                self.pop(&mut free)
            } else if (free.fresh as usize) < self.next.len() {
                free.fresh += 1;
                Frame(free.fresh - 1)
            } else {
                return None;
            }
        };
        let descriptor = self.descriptor(frame);
        descriptor[PAGE].store(page, Relaxed);
        descriptor[FLAGS].store(FRESH.into(), Relaxed);
        descriptor[OWNER].store(owner, Relaxed);
        Some(frame)
    }

    pub(crate) fn put(&self, frame: Frame) {
        let descriptor = self.descriptor(frame);
        let owner = descriptor[OWNER].swap(0, Relaxed);
        assert!(owner != 0, "frame {} is freed a second time", frame.0);
        descriptor[FLAGS].store(0, Relaxed);
        self.push(&mut self.free_list(), frame);
    }

    pub(crate) fn page(&self, frame: Frame) -> u64 {
        self.descriptor(frame)[PAGE].load(Relaxed)
    }

    pub(crate) fn flags(&self, frame: Frame) -> u32 {
        self.descriptor(frame)[FLAGS].load(Relaxed) as u32
    }

    pub(crate) fn set(&self, frame: Frame, flags: u32) {
        self.descriptor(frame)[FLAGS].fetch_or(flags.into(), Relaxed);
    }

    pub(crate) fn clear(&self, frame: Frame, flags: u32) {
        self.descriptor(frame)[FLAGS].fetch_and(!u64::from(flags), Relaxed);
    }

    /// Copies the bytes of `frame` from `at` on into `buf`.
    pub(crate) fn copy_out(&self, frame: Frame, at: usize, buf: &mut [u8]) {
        self.memory.read_at(place(frame, at, buf.len()), buf);
    }

    /// Copies `data` to `at` of `frame`.
    pub(crate) fn copy_in(&self, frame: Frame, at: usize, data: &[u8]) {
        self.memory.write_at(place(frame, at, data.len()), data);
    }

    /// Zeroes the bytes `range` of `frame`.
    pub(crate) fn zero(&self, frame: Frame, range: Range<usize>) {
        let start = place(frame, range.start, range.len());
        self.memory.zero(start..start + range.len());
    }

    fn free_list(&self) -> MutexGuard<'_, FreeList> {
        self.free.lock()
    }

    fn pop(&self, free: &mut FreeList) -> Frame {
        let frame = Frame(free.top);
        free.top = self.next[frame.index()].load(Relaxed);
        free.len -= 1;
        frame
    }

    fn push(&self, free: &mut FreeList, frame: Frame) {
        self.next[frame.index()].store(free.top, Relaxed);
        free.top = frame.0;
        free.len += 1;
    }

    fn give_back(&self, frames: &[Frame]) -> io::Result<()> {
        let mut sorted = frames.to_vec();
        sorted.sort_unstable();
        for run in sorted.chunk_by(|a, b| a.0 + 1 == b.0) {
            let start = run[0].index() * PAGE_SIZE;
            self.memory.give_back(start..start + run.len() * PAGE_SIZE)?;
        }
        Ok(())
    }
}

/// Returns whether a frame has one of `flags`.
fn has(descriptor: &Descriptor, flags: u32) -> bool {
    descriptor[FLAGS].load(Relaxed) & u64::from(flags) != 0
}

/// Returns the offset in the memfd of byte `at` of `frame`; `len` bytes from there must lie in the
/// same frame.
fn place(frame: Frame, at: usize, len: usize) -> usize {
    assert!(at + len <= PAGE_SIZE, "{len} bytes at {at} do not fit into a frame");
    frame.index() * PAGE_SIZE + at
}

#[cfg(test)]
mod tests {
    use refit_objects::{Implementations, OwnedRep, Root, TransferError};

    use super::*;
    use crate::fcm::{CacheState, FileCacheInterface, FileCacheRef};

    /// A cache that is never called.
    struct Nameplate;

    impl Root<FileCacheInterface> for Nameplate {
        fn implementation(&self) -> &str {
            "nameplate"
        }

        fn make_rep(&self, _processor: usize) -> OwnedRep<FileCacheInterface> {
            unreachable!("nobody calls it")
        }

        fn export(&self) -> Result<CacheState, TransferError> {
            Err(TransferError("nothing to export".to_owned()))
        }

        fn import(&self, _state: CacheState) -> Result<(), TransferError> {
            Err(TransferError("nothing can be imported".to_owned()))
        }
    }

    impl Implementations<FileCacheInterface> for Nameplate {
        fn names(&self) -> Vec<&'static str> {
            Vec::new()
        }

        fn root(&self, _name: &str) -> Option<Box<dyn Root<FileCacheInterface>>> {
            None
        }
    }

    fn new_owner() -> FileCacheRef {
        refit_objects::create("test", Box::new(Nameplate), Arc::new(Nameplate))
    }

    fn owner() -> FileCacheRef {
        static OWNER: std::sync::OnceLock<FileCacheRef> = std::sync::OnceLock::new();
        *OWNER.get_or_init(new_owner)
    }

    #[test]
    fn frames_run_out_and_come_back_last_first() {
        let pool = FramePool::new(3 * PAGE_SIZE as u64 + 100).unwrap();
        assert_eq!((pool.frames(), pool.free_frames()), (3, 3));
        let taken: Vec<_> = (10..13).map(|page| pool.take(owner(), page).unwrap()).collect();
        assert_eq!(pool.take(owner(), 13), None);
        assert_eq!(pool.owner(taken[1]), Some((owner(), 11)));
        pool.put(taken[1]);
        pool.put(taken[0]);
        assert_eq!((pool.owner(taken[1]), pool.free_frames()), (None, 2));
        assert_eq!(pool.take(owner(), 20), Some(taken[0]));
        assert_eq!(pool.take(owner(), 21), Some(taken[1]));
    }

    #[test]
    #[should_panic(expected = "freed a second time")]
    fn a_frame_is_freed_once() {
        let pool = FramePool::new(1).unwrap();
        let frame = pool.take(owner(), 0).unwrap();
        pool.put(frame);
        pool.put(frame);
    }

    #[test]
    fn trimming_gives_the_coldest_back_and_keeps_the_order() {
        let pool = FramePool::new(8 * PAGE_SIZE as u64).unwrap();
        let taken: Vec<_> = (0..8).map(|page| pool.take(owner(), page).unwrap()).collect();
        for &frame in &taken {
            pool.copy_in(frame, 0, &[1; PAGE_SIZE]);
        }
        for &frame in &taken[..6] {
            pool.put(frame);
        }
        assert_eq!(pool.memory.resident().unwrap(), 8 * PAGE_SIZE as u64);
        assert_eq!(pool.trim(2).unwrap(), 4);
        assert_eq!(pool.memory.resident().unwrap(), 4 * PAGE_SIZE as u64);
        assert_eq!(pool.free_frames(), 6);
        let again: Vec<_> = (0..6).map(|page| pool.take(owner(), page).unwrap()).collect();
        let expected: Vec<_> = taken[..6].iter().rev().copied().collect();
        assert_eq!(again, expected);
        assert_eq!(pool.take(owner(), 0), None);
    }

    #[test]
    fn each_cache_with_dirty_pages_is_visited_once() {
        let pool = FramePool::new(4 * PAGE_SIZE as u64).unwrap();
        let other = new_owner();
        for (page, who) in [(0, owner()), (1, other), (2, other)] {
            let frame = pool.take(who, page).unwrap();
            pool.set(frame, DIRTY);
        }
        let clean = pool.take(owner(), 3).unwrap();
        pool.set(clean, REFERENCED);
        let mut dirty = Vec::new();
        pool.visit_dirty(|cache| dirty.push(cache));
        assert_eq!(dirty.len(), 2);
        assert!(dirty.contains(&owner()) && dirty.contains(&other));
        assert_eq!(pool.dirty_frames(), 3);
    }
}
