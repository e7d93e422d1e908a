//! Finds the patch areas in a program and undoes the changes that they record. This can be done by
//! the process that made them or, if it was killed, by any later one.
//!
//! The area itself holds everything that is needed. A process forked from the program has the
//! changed code and the area too, and is cleaned as well.

mod found;
mod removed;
mod repair;
mod restore_ahead;
mod take_out;

pub use found::{Remains, find, first_page};
pub use removed::{KeptReason, Removed};
pub(crate) use repair::give_back;
pub use repair::{Which, repair, take_out, take_out_in_parts};
