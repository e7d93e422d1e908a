//! The commands, in a folder for each task of a user: its `mod.rs` defines the commands of the
//! task, as they are typed, and runs them.

pub(crate) mod code;
pub(crate) mod files;
pub(crate) mod host;
mod interruption;
pub(crate) mod moves;
pub(crate) mod objects;
pub(crate) mod observe;
pub(crate) mod programs;
mod tour;
