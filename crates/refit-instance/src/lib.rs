//! A kernel instance: its mounts, its changes, and the control API over both.
//!
//! ```text
//!   refit ls, swap, … ── Client ──► Unix socket ──► control API ──► Instance ──► System
//!                                   (PID.sock)      (HTTP + JSON)   mounts       objects, swaps,
//!                                                                   journal      file servers
//! ```
//!
//! - Does: own the mounts (several at once) and the journal; serve the control API on a socket that
//!   only its user and root can use; find the other instances of the user and remove the sockets of
//!   dead ones.
//! - Does not: serve files or swap objects itself. That is done behind [`System`], which has one
//!   production implementation ([`host`]) and others for tests.

#![forbid(unsafe_code)]

mod accept;
mod activity;
mod adapt;
mod api;
mod client;
mod context;
mod debug;
mod directory;
mod document;
pub mod exporter;
mod file_server;
mod glob;
mod handover;
mod held;
mod host;
mod instance;
mod kept;
mod kernel;
mod lending;
mod memory;
mod metrics;
mod mounts;
mod moves;
pub mod path_text;
mod placement;
mod plugins;
mod recording;
mod refusal;
mod rejection;
mod server;
mod state;
mod streams;
mod swaps;
mod system;
mod totals;
mod upgrade_list;
mod upgrades;
pub mod wire;
mod wraps;

pub use client::{Client, Lines};
pub use directory::{RunningInstances, SocketDirectory, find};
pub use file_server::{AdoptedMount, PreparedMount};
pub use glob::Glob;
pub use held::{HeldServer, LeftState};
pub use host::{host, host_of, host_of_kernel};
pub use instance::{Instance, InstanceOptions};
pub use lending::LentProgram;
pub use metrics::merged as merged_metrics;
pub use refit_objects::Clustering;
pub use refusal::{Kind, Refusal};
pub use system::{Converse, Served, SwapRequest, System, UpgradeRequest, WrapAct, WrapRequest};
