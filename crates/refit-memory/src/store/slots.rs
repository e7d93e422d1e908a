//! The allocation of a swap file: one bit for each page.
//!
//! Pages that are written together are read together, so they get consecutive slots, from the end
//! of the last allocation on; only if no such run is left, any free ones.

/// An allocated page of a swap file, and the checksum of its contents.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u32,
    pub(super) sum: u32,
}

/// The slots of a file.
#[derive(Debug)]
pub(super) struct Slots {
    taken: Vec<u64>,
    most: u32,
    free: u32,
    /// The position at which the search begins.
    hand: u32,
}

impl Slots {
    pub(super) fn new(most: u32) -> Self {
        Self { taken: vec![0; most.div_ceil(64) as usize], most, free: most, hand: 0 }
    }

    /// Returns the number of slots.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Allocates `count` slots, in ascending order; `None` if fewer are free.
    pub(super) fn take(&mut self, count: u32) -> Option<Vec<u32>> {
        if count > self.free {
            return None;
        }
        let begin = self.run(self.hand, count).or_else(|| self.run(0, count));
        let found: Vec<u32> = match begin {
            Some(begin) => (begin..begin + count).collect(),
            None => (0..self.most).filter(|&at| !self.is_taken(at)).take(count as usize).collect(),
        };
        for &at in &found {
            self.taken[at as usize / 64] |= 1 << (at % 64);
        }
        self.free -= count;
        self.hand = found.last().map_or(self.hand, |last| last + 1);
        Some(found)
    }

    /// Frees a slot.
    pub(super) fn give(&mut self, at: u32) {
        debug_assert!(self.is_taken(at));
        self.taken[at as usize / 64] &= !(1 << (at % 64));
        self.free += 1;
    }

    fn is_taken(&self, at: u32) -> bool {
        self.taken[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Returns the beginning of the first run of `count` free slots from `from` on.
    fn run(&self, from: u32, count: u32) -> Option<u32> {
        let (mut begin, mut at) = (from, from);
        while at < self.most {
            if at % 64 == 0 && self.taken[at as usize / 64] == u64::MAX {
                at += 64;
                begin = at;
                continue;
            }
            let taken = self.is_taken(at);
            at += 1;
            if taken {
                begin = at;
            }
            if at - begin == count {
                return Some(begin);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_first_then_whatever_is_free() {
        let mut slots = Slots::new(200);
        assert_eq!(slots.take(100), Some((0..100).collect()));
        assert_eq!(slots.take(70), Some((100..170).collect()));
        (10..50).chain(90..95).for_each(|at| slots.give(at));
        // 30 at the end, 40 and 5 before.
        assert_eq!(slots.take(35), Some((10..45).collect()));
        assert_eq!(slots.take(31), Some((45..50).chain(90..95).chain(170..191).collect()));
        assert_eq!(slots.take(10), None);
        assert_eq!(slots.take(9), Some((191..200).collect()));
        assert_eq!(slots.take(1), None);
        assert_eq!(slots.take(0), Some(vec![]));
        slots.give(64);
        assert_eq!(slots.take(1), Some(vec![64]));
    }
}
