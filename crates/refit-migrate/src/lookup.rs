//! Lookups of what is mapped at an address, by protocols that are exchanged while programs run.
//!
//! ```text
//!   refit swap retrieval:PID chain ──► object ── plan ──► coordinator ── Follow ──► Replica
//!                                                                       │
//!                              a thread touches an unmapped address ────┤
//!             mapped ◄── MappingCache ◄─┬── others ◄── Seek ────────────┤
//!                                       └── origin ◄── Retrieve ────────┘
//! ```
//!
//! | protocol | nodes that are asked | messages |
//! |---|---|---|
//! | `directory` | the origin, which knows all | 2 |
//! | `all` | all nodes at once (Katz 2014, §5.7.3) | 2 for each other node |
//! | `chain` | one, which may pass it on, the origin last (§8.2.1) | 2, and 1 for each pass |
//! | `group` | those that have a replica, and the origin, at once (§8.2.2) | 2 for each of them |
//!
//! An object of the origin, `retrieval:PID`, decides for each node which others it asks
//! ([`RetrievalObject::plan`]); the coordinator sends the plan. Any node that has the address
//! mapped may answer. Only the origin may answer that nothing is there, and only it turns private
//! memory into frames (the precedence of §5.7.3, where a mapping beats a mere area, and an area
//! beats nothing). If the others have not answered a lookup, the origin is asked.
//!
//! [`cache`] says when an answer may be used, and why that is enough.

mod answer;
pub(crate) mod cache;
mod pass_on;
pub(crate) mod pending;
mod protocol;

pub(crate) use answer::{LookupAnswer, shown_range};
pub(crate) use cache::MappingCache;
pub(crate) use pass_on::pass_on;
pub(crate) use pending::PendingQueries;
pub use protocol::Protocol;
pub(crate) use protocol::{Plan, RetrievalObject};
