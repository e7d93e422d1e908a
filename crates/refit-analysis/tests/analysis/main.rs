//! The analysis of machine code: on small programs with one hazard each, on Debian's programs, on
//! damaged files.

mod binaries;
mod build;
mod damaged;
mod hazards;
mod lines;
mod live;
mod split;
mod types;
