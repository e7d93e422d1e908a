//! A group's replica at a node other than its origin: a process, empty at first, in which threads
//! of ours run the instructions of the group's threads.
//!
//! The first task of the replica, its *leader*, never runs. It makes tasks and removes mappings for
//! the *replica server*, the thread of ours that traces it. Each other task has a thread of ours of
//! its own, its executor ([`crate::remote::executor`]), which adds mappings.
//!
//! **No mapping outlives what it shows.** An executor looks an address up, and maps the answer
//! later; in between, the origin may have invalidated the answer. So each invalidation is counted,
//! under the lock that protects the making of mappings: an answer to an older lookup is not mapped,
//! and the lookup is repeated ([`Replica::map`], [`crate::lookup::cache`]).
//!
//! | module | contents |
//! |---|---|
//! | `state` | [`Replica`], and the operations that messages request |
//! | `start` | making a replica, and its executors |
//! | `replica_server`, `job` | the thread that traces the leader, and its jobs |
//! | `lookups` | lookups of addresses, and answers to those of others |
//! | `pages`, `page_transfer` | pages that move |

mod job;
mod lookups;
mod page_transfer;
mod pages;
mod replica_server;
mod start;
mod state;

pub(crate) use replica_server::SpareReplicas;
pub(crate) use start::start;
pub(crate) use state::Replica;
