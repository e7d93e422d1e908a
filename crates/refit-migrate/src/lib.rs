//! Moves programs, whole or thread by thread, to other nodes and back (Katz 2014, chapter 5).
//!
//! ```text
//!   origin                                          another node
//!   program ─ shadow of a thread                    replica ─ the thread's instructions
//!      │         makes its system calls  ◄─ slot ─      │  executor: one of our threads each
//!      ▼                                                ▼
//!   Supervisor ◄─► coordinator  ◄───── messages ──► Replica
//!                   └ AddressSpace: memory becomes frames, which replicas map at a thread's touch
//! ```
//!
//! A thread has two halves. The user half moves: its registers, and the effects of its instructions
//! on memory. The kernel half (number, descriptors, signals and their handlers, children, timers,
//! locks) stays where the program began, so refit need not transfer, renumber or imitate any of it.
//! This half is the thread's shadow, and makes its system calls.
//!
//! # Modules
//!
//! | module | contents |
//! ---|---|
//! | [`Node`] | a kernel instance among others: the main entry |
//! | `membership` | how nodes of several hosts find each other, lose each other, and meet again |
//! | `migration` | the node's part in all moves: coordinators of its programs, replicas |
//! | `dispatch` | which message goes to which of them |
//! | `protocol` | the messages, and a thread's state on the wire |
//! | `origin` | the origin of a program: coordinator, address space, shadows' system calls |
//! | `remote` | what another node does: replica, executors, mappings |
//! | `dsm` | pages that move between nodes which share no memory |
//! | `lookup` | lookups of what is mapped at an address |
//! | `mm_lock` | which node may change a program's memory |
//! | `syscalls` | where a system call of a thread that is away is made |
//! | `frames`, `page` | the frames of a group; the size of a page |
//! | `setting`, `resources`, `quota` | a node's settings, what its parts share, its memory |
//! | `stats`, `fault_injection` | counts; moves that fail on purpose |
//!
//! # What it does not do
//!
//! It moves threads, and reports where they are. It does not decide where a thread is better off.

#![deny(unsafe_code)]

mod dispatch;
mod dsm;
mod error;
mod fault_injection;
mod frames;
mod lookup;
mod membership;
mod migration;
mod mm_lock;
mod node;
mod origin;
mod page;
mod protocol;
mod quota;
mod remote;
mod resources;
mod setting;
mod stats;
mod syscalls;

pub use dsm::Window;
pub use error::{BootError, MoveError, MoveRefusal};
pub use lookup::Protocol;
pub use membership::absent::Absence;
pub use mm_lock::Lock;
pub use node::{Connection, Node, Reached, Roam};
pub use protocol::messages::GroupId;
pub use refit_messages::{MessageError, Refusal, Security};
pub use setting::Setting;
pub use stats::{MoveCounts, PageCounts, Tally, Times, Traffic};

/// A header for C by which a thread asks where it runs, and to run elsewhere.
pub const HEADER: &str = include_str!("../include/refit_move.h");
