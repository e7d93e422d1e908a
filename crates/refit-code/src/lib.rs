//! Machine code of running programs: what is there, and code spliced in and taken out.
#![forbid(unsafe_code)]

pub mod probe;
pub mod process;
pub mod splice;
