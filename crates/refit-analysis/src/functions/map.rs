//! Finds the function that an address belongs to.

use crate::functions::{Function, FunctionId};

/// Ranges of all functions by ascending address.
#[derive(Debug, Default)]
pub(crate) struct Map {
    ranges: Vec<(u64, u64, u32)>,
}

impl Map {
    /// Builds the map of `functions`, whose ranges do not overlap.
    pub(crate) fn new<'a>(functions: impl Iterator<Item = &'a Function>) -> Self {
        let mut ranges = Vec::new();
        for (i, function) in functions.enumerate() {
            ranges.extend(function.ranges.iter().map(|r| (r.start, r.end, i as u32)));
        }
        ranges.sort_unstable();
        Self { ranges }
    }

    /// Returns the function that the byte at `address` belongs to.
    pub(crate) fn at(&self, address: u64) -> Option<FunctionId> {
        let next = self.ranges.partition_point(|r| r.0 <= address);
        let (_, end, id) = *self.ranges[..next].last()?;
        (address < end).then_some(FunctionId(id))
    }

    /// Whether all ranges are non-empty and disjoint.
    pub(crate) fn is_sound(&self) -> bool {
        self.ranges.iter().all(|r| r.0 < r.1) && self.ranges.windows(2).all(|w| w[0].1 <= w[1].0)
    }
}
