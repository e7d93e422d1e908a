//! Versions of functions of running, unmodified programs, for hot values of arguments.

#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod bits;
pub mod code;
pub mod condition;
pub mod constants;
mod error;
pub mod evaluate;
pub mod fold;
pub mod graph;
pub mod operands;
mod order;
pub mod plan;
pub mod set;
pub mod state;
mod version;

pub use code::entry_site;
pub use error::NoVersion;
pub use version::{Figures, version};
