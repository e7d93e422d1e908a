//! The life of a change: every mechanism of refit (swap, splice, move) goes through the same phases,
//! ends in the same report and stands in the same journal.
//!
//! Does: name the phases, time them, keep the journal. Does not: any I/O, any thread, any clock of its own
//! beyond `Instant` and `SystemTime`.

#![forbid(unsafe_code)]

mod journal;
mod report;

pub use journal::{Entry, Follow, Journal};
pub use report::{Blocker, Change, ChangeId, End, Phase, PhaseTime, Report, Timeline};
