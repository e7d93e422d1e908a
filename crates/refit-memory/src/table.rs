//! The map from the pages of a file to frames: a hash table that holds only frame numbers.
//!
//! The page of a frame is in the frame's descriptor already, and every access to a page reads the
//! descriptor anyway (is the page busy, was it used recently). So the table keeps no keys: a slot
//! is four bytes, and the descriptor holds the key. Open addressing with linear probing; removal
//! shifts later entries back, so that there are no tombstones to clean up. An empty table allocates
//! nothing.
//!
//! The table belongs to the cache that owns the frames: the page in their descriptors does not
//! change while they are in it.

use crate::frames::{Frame, FramePool};

const EMPTY: u32 = u32::MAX;
const SMALLEST: usize = 4;

/// Frames by page number.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTable {
    /// A power of two of slots, or none.
    slots: Box<[u32]>,
    len: usize,
}

impl PageTable {
    /// Returns the number of pages in the table.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the frame of `page`.
    pub(crate) fn get(&self, pool: &FramePool, page: u64) -> Option<Frame> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.home(page);
        while let Some(frame) = Frame::from_word(self.slots[slot]) {
            if pool.page(frame) == page {
                return Some(frame);
            }
            slot = self.next(slot);
        }
        None
    }

    /// Reserves room for `more` pages, so that the following inserts do not grow the table step by
    /// step.
    pub(crate) fn reserve(&mut self, pool: &FramePool, more: usize) {
        let wanted = (self.len + more).max(1);
        // At most three quarters full, so that probes stay short.
        let needed = (wanted + wanted.div_ceil(3)).next_power_of_two().max(SMALLEST);
        if needed > self.slots.len() {
            self.resize(pool, needed);
        }
    }

    /// Adds `frame` under the page in its descriptor, which must not be in the table yet.
    pub(crate) fn insert(&mut self, pool: &FramePool, frame: Frame) {
        debug_assert!(self.get(pool, pool.page(frame)).is_none(), "a page has one frame");
        self.reserve(pool, 1);
        self.put(pool, frame);
        self.len += 1;
    }

    /// Removes `page` and returns its frame.
    pub(crate) fn remove(&mut self, pool: &FramePool, page: u64) -> Option<Frame> {
        if self.slots.is_empty() {
            return None;
        }
        let mut hole = self.home(page);
        let removed = loop {
            let frame = Frame::from_word(self.slots[hole])?;
            if pool.page(frame) == page {
                break frame;
            }
            hole = self.next(hole);
        };
        self.close(pool, hole);
        self.len -= 1;
        if self.len == 0 {
            self.slots = Box::default();
        } else if self.len * 4 <= self.slots.len() {
            self.resize(pool, self.slots.len() / 2);
        }
        Some(removed)
    }

    /// Returns all frames, in no particular order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.slots.iter().filter_map(|&word| Frame::from_word(word))
    }

    /// Returns the first frame at or behind a slot, and its slot.
    pub(crate) fn next_from(&self, slot: usize) -> Option<(usize, Frame)> {
        let found = |slot: usize| Some((slot, Frame::from_word(self.slots[slot])?));
        (slot..self.slots.len()).find_map(found)
    }

    fn resize(&mut self, pool: &FramePool, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; slots].into_boxed_slice());
        for frame in old.iter().filter_map(|&word| Frame::from_word(word)) {
            self.put(pool, frame);
        }
    }

    /// Shifts back entries that a search would no longer find beyond the hole.
    fn close(&mut self, pool: &FramePool, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut slot = self.next(hole);
        while let Some(frame) = Frame::from_word(self.slots[slot]) {
            let home = self.home(pool.page(frame));
            // The entry may move to the hole unless its home lies (cyclically) behind the hole.
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(hole) & mask {
                self.slots[hole] = frame.word();
                hole = slot;
            }
            slot = self.next(slot);
        }
        self.slots[hole] = EMPTY;
    }

    fn put(&mut self, pool: &FramePool, frame: Frame) {
        let mut slot = self.home(pool.page(frame));
        while self.slots[slot] != EMPTY {
            slot = self.next(slot);
        }
        self.slots[slot] = frame.word();
    }

    /// Fibonacci hashing: the upper bits of the product depend on all bits of the page number.
    fn home(&self, page: u64) -> usize {
        let bits = self.slots.len().trailing_zeros();
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
    }

    fn next(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }
}
