//! Swaps of caches according to their use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request to swap caches according to their use, for as long as the answer is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Adapt {
    /// A pattern for names.
    pub glob: String,
    /// The interval, in milliseconds.
    pub every_ms: u64,
    /// A cache is swapped to `sequential` when at least this percentage of its accesses follow one
    /// another.
    pub above_percent: u64,
    /// A cache is swapped back from `sequential` when less than this percentage of its accesses do.
    pub below_percent: u64,
    /// A cache is swapped to `partitioned` when at least this percentage of its calls begin while
    /// another is inside.
    #[serde(default = "Adapt::overlapping_above_percent")]
    pub overlapping_above_percent: u64,
    /// A cache is swapped back from `partitioned` when less than this percentage of its calls do.
    #[serde(default = "Adapt::overlapping_below_percent")]
    pub overlapping_below_percent: u64,
    /// The duration, in milliseconds. The default is until the client disconnects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

impl Adapt {
    /// The default of [`overlapping_above_percent`](Self::overlapping_above_percent).
    fn overlapping_above_percent() -> u64 {
        20
    }

    /// The default of [`overlapping_below_percent`](Self::overlapping_below_percent).
    fn overlapping_below_percent() -> u64 {
        5
    }
}
