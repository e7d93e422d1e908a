//! Ranges that are likely to be frames. A node that has a new replica, or has invalidated ranges,
//! looks up again the ranges that were looked up before. One answer has several of them, since
//! neighbours are needed together.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that were frames when they were seen last, by their starts. They may overlap, and may be
/// frames no more.
#[derive(Debug, Default)]
pub(super) struct KnownFrames(BTreeMap<u64, u64>);

impl KnownFrames {
    /// Notes a range that is frames.
    pub(super) fn note(&mut self, range: &Range<u64>) {
        self.0.insert(range.start, range.end);
    }

    /// Forgets the range that starts at an address.
    pub(super) fn remove(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// Returns the starts of the ranges in a gap around an address, the nearest below and above in
    /// turn.
    pub(super) fn near(&self, address: u64, gap: &Range<u64>) -> impl Iterator<Item = u64> {
        // The gap comes from a peer, and may be no range.
        let (start, end) = (gap.start.min(address), gap.end.max(address));
        let mut below = self.0.range(start..address).rev();
        let mut above = self.0.range(address..end);
        let pairs = std::iter::from_fn(move || {
            let pair = [below.next(), above.next()];
            pair.iter().any(Option::is_some).then_some(pair)
        });
        pairs.flatten().flatten().map(|(&start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_only_those_of_the_gap() {
        let mut known = KnownFrames::default();
        [10, 20, 30, 50, 60].iter().for_each(|&start| known.note(&(start..start + 5)));
        let near = |address, gap| known.near(address, &gap).collect::<Vec<_>>();
        assert_eq!(near(40, 0..100), [30, 50, 20, 60, 10]);
        assert_eq!(near(40, 25..55), [30, 50]);
        assert!(near(40, Range { start: 90, end: 3 }).is_empty());
    }
}
