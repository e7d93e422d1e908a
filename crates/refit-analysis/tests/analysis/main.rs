//! The analysis of machine code: on small programs with one hazard each, on what Debian ships, on damaged files.

mod binaries;
mod build;
mod damaged;
mod hazards;
mod lines;
mod live;
