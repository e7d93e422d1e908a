//! Programs under an instance.
//!
//! ```text
//! refit run ── tends ──► refit tend (an instance) ── follows ──► Supervisor ──► refit ps
//!     └─ becomes the program ◄─── followed, with all that it starts
//! ```
//!
//! The program has the process that `refit run` was: its parent, descriptors, terminal, process group and signals are what they would
//! be without refit, and so is its exit code. The instance is nobody's child here, and in a session of its own.
//!
//! Does: know every task of the tree that a program makes, from its first instruction to its last ([`Supervisor`]); limit the memory of all
//! ([`Memory`]); have programs hold nothing of the kernel that runs them ([`Supervisor::of_movable`]).
//! Does not: start anything.

#![deny(unsafe_code)]

mod absent;
mod meeting;
mod memory;
mod migration;
mod movable;
mod node;
mod process;
mod remote;
mod supervisor;

pub use absent::Absence;
pub use memory::{LimitError, Memory, ProgramMemory, Totals, Unserved, Warnings, can_limit};
pub use migration::{
    GroupId, Lock, Migration, MoveCounts, MoveError, PageCounts, Protocol, Tally, Times, Traffic,
    Window,
};
pub use node::{Connection, Node, Reached, Roam, Setting};
pub use process::Process;
pub use refit_messages::{MessageError, Refusal, Security};
pub use supervisor::Supervisor;
pub use supervisor::processors::Shown;

/// A header for C by which a thread asks where it runs, and to run elsewhere.
pub const HEADER: &str = include_str!("../include/refit_move.h");
