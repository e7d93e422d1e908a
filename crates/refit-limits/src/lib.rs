//! Limits the memory of a tree of programs: what it has beyond its budget is compressed, or goes to a swap file, and comes
//! back when a program touches it.
//!
//! The limit is enforced by eviction; allocations never fail because of it. As long as the programs have less than half of
//! their budget, the kernel alone resolves their faults. Beyond that their anonymous memory is served
//! ([`refit_memory::program`]), and one thread, the reclaimer, frees frames before they are needed.
//!
//! | module | what it holds |
//! |---|---|
//! | `memory` | the budget, the programs that are served, how that begins and ends |
//! | `shared` | the state that the reclaimer, the event loop and callers share |
//! | `reclaimer` | the reclaimer's rounds: which programs are served, what is counted, what is evicted |
//! | `served` | a program that is served |
//! | `survey` | what a program has mapped, and how much of it is resident |
//! | `coverage` | which mappings of a program are served |
//! | `setup` | getting hold of a program's memory |
//! | `births` | what a child has of its parent's memory, before it begins |
//! | `dumps` | images of memory that the kernel writes when a program ends |
//! | `warnings` | limits that were not kept, and that nobody has been told of |
//! | `host` | whether this host lets us |
//!
//! Does: evict and bring back pages of programs. Does not: limit memory that is shared, locked, or of files.

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
