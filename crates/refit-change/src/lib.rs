//! The life of a change: every mechanism of refit (swap, splice, move) goes through the same
//! phases, ends in the same report and is recorded in the same journal.
//!
//! The crate names the phases, times them, and keeps the journal. It does no I/O, starts no thread,
//! and has no clock beyond `Instant` and `SystemTime`.
//!
//! ```
//! use refit_change::{Change, End, Follow, Journal, Phase, Report, Timeline};
//! use std::time::Duration;
//!
//! let journal = Journal::new(100);
//! let change = Change::new(journal.next_id(), "swap", "fcm:/a", "shared", "partitioned", "me");
//!
//! let mut timeline = Timeline::begin(); // the new part is being built
//! timeline.enter(Phase::Install);
//! timeline.enter(Phase::Quiesce);
//! timeline.enter(Phase::Transfer);
//! timeline.enter(Phase::Commit);
//!
//! journal.write(Report {
//!     change,
//!     phases: timeline.end(),
//!     end: End::Committed,
//!     forwarded: 12,
//!     blocked: 3,
//!     longest_block_ns: 8_000,
//!     blockers: vec![],
//!     target_gone: false,
//!     objects: 1,
//!     attempts: 1,
//!     late: false,
//!     transfers: vec![],
//!     effect: String::new(),
//! });
//!
//! let Follow::Next(entry) = journal.follow(0, Duration::ZERO) else { panic!("it was written") };
//! assert!(entry.report.committed());
//! assert_eq!(entry.report.phases.len(), 5);
//! ```

#![forbid(unsafe_code)]

mod journal;
mod report;
mod timeline;
mod transfer;
pub mod watch;

pub use journal::{Entry, Follow, Journal, Total};
pub use report::{Blocker, Change, ChangeId, End, Phase, PhaseTime, Report};
pub use timeline::Timeline;
pub use transfer::{Drained, Negotiation, Ranked, Transferred, Way};
