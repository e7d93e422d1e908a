//! Where frames of a group are likely to be: what was asked for there once, and is asked for again by who has a replica that is new, or has
//! forgotten something. That is asked for together, since neighbours are needed together.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::origin::address_space::{AddressSpace, access, frames};
use crate::protocol::messages::Frames;

/// Ranges that were frames when they were seen last, by beginning. They may overlap, and may be frames no more.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeMap<u64, u64>);

impl Shared {
    /// These are frames.
    pub(super) fn note(&mut self, range: &Range<u64>) {
        self.0.insert(range.start, range.end);
    }

    /// Those in a gap around an address, the nearer ones below and above in turn.
    fn near(&self, address: u64, gap: &Range<u64>) -> impl Iterator<Item = u64> {
        // What the peer says may be no range.
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

impl AddressSpace {
    /// Frames in a gap around an address, besides those at the address: `most` of them, the nearest.
    pub(crate) fn beside(&mut self, address: u64, gap: &Range<u64>, most: usize) -> Vec<Frames> {
        // What is frames no more is found only once.
        let near: Vec<u64> = self.shared.near(address, gap).take(2 * most).collect();
        let mut found: Vec<Frames> = Vec::with_capacity(most);
        for start in near {
            if found.len() == most {
                break;
            }
            let here = self.maps.from(start).ok().flatten();
            let here = here.filter(|one| frames(one) && one.range.contains(&start));
            let Some(mapping) = here else {
                self.shared.0.remove(&start);
                continue;
            };
            let (range, access) = (mapping.range.clone(), access(&mapping));
            let within = gap.start <= range.start && range.end <= gap.end;
            let again = range.contains(&address) || found.iter().any(|one| one.range == range);
            if access != 0 && within && !again {
                found.push(Frames { range, access });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_only_those_of_the_gap() {
        let mut shared = Shared::default();
        [10, 20, 30, 50, 60].iter().for_each(|&start| shared.note(&(start..start + 5)));
        let near = |address, gap| shared.near(address, &gap).collect::<Vec<_>>();
        assert_eq!(near(40, 0..100), [30, 50, 20, 60, 10]);
        assert_eq!(near(40, 25..55), [30, 50]);
        assert!(near(40, Range { start: 90, end: 3 }).is_empty());
    }
}
