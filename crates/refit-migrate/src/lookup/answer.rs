//! The answer to a lookup.

use std::ops::Range;

use crate::lookup::cache::{AnswerSource, MappingCache, Mark};
use crate::protocol::messages::{Frames, Mapping};

/// The answer to a lookup.
pub(crate) struct LookupAnswer {
    pub(crate) mapping: Mapping,
    /// Frames near the address, for fault-around.
    pub(crate) beside: Vec<Frames>,
    pub(crate) source: AnswerSource,
    /// When the lookup began.
    pub(crate) mark: Mark,
    /// The number of messages that the lookup took.
    pub(crate) messages: u64,
}

impl LookupAnswer {
    /// Returns whether a node that knows this much may use the answer.
    pub(crate) fn holds(&self, known: &MappingCache) -> bool {
        known.allows(self.mark, self.source, &shown_range(&self.mapping))
    }

    pub(crate) fn by_origin(&self) -> bool {
        self.source == AnswerSource::Origin
    }
}

/// Returns the addresses of which a mapping says something. That nothing is mapped is said of any
/// address.
pub(crate) fn shown_range(mapping: &Mapping) -> Range<u64> {
    match mapping {
        Mapping::Nothing => 0..u64::MAX,
        Mapping::Frames { range, .. } | Mapping::File { range, .. } => range.clone(),
    }
}
