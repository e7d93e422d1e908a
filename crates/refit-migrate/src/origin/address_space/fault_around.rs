//! Frames near an address that is looked up.

use std::ops::Range;

use crate::frames::{access, is_frames};
use crate::origin::address_space::AddressSpace;
use crate::protocol::messages::Frames;

impl AddressSpace {
    /// Returns the frames in a gap around an address, besides those at the address: at most `most`
    /// of them, the nearest.
    pub(crate) fn beside(&mut self, address: u64, gap: &Range<u64>, most: usize) -> Vec<Frames> {
        // A range that is frames no more is found only once.
        let near: Vec<u64> = self.known_frames.near(address, gap).take(2 * most).collect();
        let mut found: Vec<Frames> = Vec::with_capacity(most);
        for start in near {
            if found.len() == most {
                break;
            }
            let here = self.maps.from(start).ok().flatten();
            let here = here.filter(|one| is_frames(one) && one.range.contains(&start));
            let Some(mapping) = here else {
                self.known_frames.remove(start);
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
