//! Limits the memory of a tree of programs: what exceeds the limit is compressed, or goes to a swap
//! file, and comes back when a program touches it.
//!
//! The limit is enforced by eviction; allocations never fail because of it. As long as the programs
//! have less than half of the limit, the kernel alone resolves their faults. Beyond that, their
//! anonymous memory is served ([`refit_memory::program`]), and one thread, the reclaimer, frees
//! frames before they are needed.
//!
//! # Modules
//!
//! | module | contents |
//! ---|---|
//! | `memory` | the main entry: the limit, and how serving begins and ends |
//! | `shared` | the state that the reclaimer, the event loop and callers share |
//! | `reclaimer` | its rounds: which programs are served, what is counted, what is evicted |
//! | `served` | a program that is served |
//! | `survey` | what a program has mapped, and how much of it is resident |
//! | `coverage` | which mappings of a program are served |
//! | `setup` | sets a program up to be served |
//! | `births` | what a child has of its parent's memory, before it begins |
//! | `dumps` | completes core dumps |
//! | `warnings` | failures that were not reported to a user yet |
//! | `host` | checks whether this host can limit memory |
//!
//! # What it does not do
//!
//! It evicts and brings back pages of programs. It does not limit memory that is shared, locked, or
//! of files.

#![forbid(unsafe_code)]

mod births;
mod coverage;
mod dumps;
mod host;
mod memory;
mod reclaimer;
mod served;
mod setup;
mod shared;
mod survey;
mod warnings;

pub use host::{LimitError, MIN_LIMIT, can_limit};
pub use memory::{Memory, ProgramMemory};
pub use shared::Totals;
pub use warnings::{Unserved, Warnings};
