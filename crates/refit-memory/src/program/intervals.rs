//! The owners of parts of an address space: ranges that do not overlap, in order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Ranges of addresses, each of which has an owner. Adjacent ranges of the same owner are merged.
#[derive(Debug)]
pub(crate) struct Intervals<T> {
    /// By start: the end of the range, and its owner.
    all: BTreeMap<u64, (u64, Arc<T>)>,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new() }
    }
}

impl<T> Intervals<T> {
    /// Returns the owner of an address, and the end of its range.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Arc<T>)> {
        let (_, (end, owner)) = self.all.range(..=address).next_back()?;
        (address < *end).then_some((*end, owner))
    }

    /// Returns all ranges and their owners, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &Arc<T>)> {
        self.all.iter().map(|(&start, (end, owner))| (start..*end, owner))
    }

    /// Returns the parts of `range` that have an owner.
    pub(crate) fn within(&self, range: &Range<u64>) -> Vec<(Range<u64>, Arc<T>)> {
        let before =
            self.all.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let touched = self.all.range(before..range.end.max(before));
        let cut = |(&start, (end, owner)): (&u64, &(u64, Arc<T>))| {
            (start.max(range.start)..range.end.min(*end), Arc::clone(owner))
        };
        touched.map(cut).filter(|(part, _)| part.start < part.end).collect()
    }

    /// Returns the parts of `range` that have no owner.
    pub(crate) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut from = range.start;
        for (part, _) in self.within(range) {
            if from < part.start {
                gaps.push(from..part.start);
            }
            from = part.end;
        }
        if from < range.end {
            gaps.push(from..range.end);
        }
        gaps
    }

    /// Returns the owner of the nearest range, above or below.
    pub(crate) fn nearest(&self, address: u64) -> Option<&Arc<T>> {
        let below = self.all.range(..=address).next_back();
        let below = below.map(|(_, (end, owner))| (address.saturating_sub(*end), owner));
        let above =
            self.all.range(address..).next().map(|(&start, (_, owner))| (start - address, owner));
        [below, above].into_iter().flatten().min_by_key(|(gap, _)| *gap).map(|(_, owner)| owner)
    }

    /// Returns the owner of what ends where `range` begins, and of what begins where it ends.
    pub(crate) fn neighbours(&self, range: &Range<u64>) -> impl Iterator<Item = &Arc<T>> {
        let below = self.all.range(..range.start).next_back();
        let below = below.filter(|(_, (end, _))| *end == range.start).map(|(_, (_, owner))| owner);
        below.into_iter().chain(self.all.get(&range.end).map(|(_, owner)| owner))
    }

    /// Gives `range`, which has no owner, to `owner`.
    pub(crate) fn insert(&mut self, range: Range<u64>, owner: Arc<T>) {
        debug_assert!(self.within(&range).is_empty(), "{range:x?} belongs to something");
        let Range { mut start, mut end } = range;
        if let Some((&before, (its_end, its))) = self.all.range(..start).next_back()
            && *its_end == start
            && Arc::ptr_eq(its, &owner)
        {
            start = before;
        }
        if let Some((its_end, its)) = self.all.get(&end)
            && Arc::ptr_eq(its, &owner)
        {
            let its_end = *its_end;
            self.all.remove(&end);
            end = its_end;
        }
        self.all.insert(start, (end, owner));
    }

    /// Removes all owners from `range`. Returns the parts that had one, and their owners.
    pub(crate) fn carve(&mut self, range: &Range<u64>) -> Vec<(Range<u64>, Arc<T>)> {
        let parts = self.within(range);
        for (part, owner) in &parts {
            let Some((&start, &(end, _))) = self.all.range(..=part.start).next_back() else {
                continue;
            };
            self.all.remove(&start);
            if start < part.start {
                self.all.insert(start, (part.start, Arc::clone(owner)));
            }
            if part.end < end {
                self.all.insert(part.end, (end, Arc::clone(owner)));
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(intervals: &Intervals<u8>) -> Vec<(Range<u64>, u8)> {
        intervals.iter().map(|(range, owner)| (range, **owner)).collect()
    }

    #[test]
    fn ranges_of_one_owner_that_touch_are_one() {
        let (one, other) = (Arc::new(1), Arc::new(2));
        let mut all = Intervals::default();
        all.insert(10..20, Arc::clone(&one));
        all.insert(30..40, Arc::clone(&one));
        all.insert(20..30, Arc::clone(&one));
        all.insert(40..50, other);
        assert_eq!(of(&all), [(10..40, 1), (40..50, 2)]);
        assert_eq!(all.find(39).map(|(end, owner)| (end, **owner)), Some((40, 1)));
        assert_eq!(all.find(40).map(|(end, owner)| (end, **owner)), Some((50, 2)));
        assert_eq!((all.find(9), all.find(50)), (None, None));
    }

    #[test]
    fn what_is_carved_out_leaves_both_sides() {
        let mut all = Intervals::default();
        all.insert(10..40, Arc::new(1));
        all.insert(50..60, Arc::new(2));
        let carved: Vec<_> =
            all.carve(&(20..55)).into_iter().map(|(range, owner)| (range, *owner)).collect();
        assert_eq!(carved, [(20..40, 1), (50..55, 2)]);
        assert_eq!(of(&all), [(10..20, 1), (55..60, 2)]);
        assert_eq!(all.gaps(&(0..70)), [0..10, 20..55, 60..70]);
        assert!(all.carve(&(20..55)).is_empty());
        all.insert(20..30, Arc::new(3));
        assert_eq!(of(&all), [(10..20, 1), (20..30, 3), (55..60, 2)]);
    }

    #[test]
    fn the_nearest_is_below_or_above() {
        let mut all = Intervals::default();
        assert_eq!(all.nearest(5), None);
        all.insert(10..20, Arc::new(1));
        all.insert(40..50, Arc::new(2));
        let nearest = |at| all.nearest(at).map(|owner| **owner);
        assert_eq!(
            (nearest(5), nearest(25), nearest(35), nearest(99)),
            (Some(1), Some(1), Some(2), Some(2))
        );
        let beside: Vec<_> = all.neighbours(&(20..40)).map(|owner| **owner).collect();
        assert_eq!(beside, [1, 2]);
    }
}
