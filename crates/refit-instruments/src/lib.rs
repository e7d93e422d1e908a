//! Instruments (counters, timers and events), the buffers that they write to, and traces (Kohr
//! 1994, §3-6).
//!
//! An instrument ([`instrument`]) writes fixed-size records ([`record`]) into the buffer of the
//! processor that it runs on, in a memory area that processes share ([`session`]). The meaning of a
//! record is given by its definition ([`definition`]). A recorder ([`mod@write`]) writes the
//! buffers to a trace, which is a file of blocks with checksums ([`block`]) that can be read up to
//! the point at which its writer was killed. Longer texts, which programs are asked to print, are
//! [`messages`].

#![forbid(unsafe_code)]

// The tests of the write side and the unit tests share a reader, which refers to the crate by name.
#[cfg(test)]
extern crate self as refit_instruments;

/// The header `refit.h`: instruments for programs in C and C++.
pub const HEADER: &str = include_str!("../include/refit.h");

pub mod analysis;
pub mod block;
pub mod definition;
pub mod export;
#[cfg_attr(all(loom, not(test)), expect(dead_code, reason = "only the model uses it then"))]
mod follow;
#[cfg(not(loom))]
pub mod instrument;
#[cfg_attr(loom, expect(dead_code, reason = "only the models use it then"))]
pub mod messages;
pub mod read;
pub mod record;
#[cfg_attr(loom, expect(dead_code, reason = "only the models use it then"))]
mod ring;
#[cfg(not(loom))]
pub mod session;
mod sync;
#[cfg(not(loom))]
pub mod write;
