//! The errors of exports.

use std::io;

use crate::read;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace can no longer be read.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// The output cannot be written.
    #[error("write the export: {0}; make room, or name another file")]
    Write(#[from] io::Error),
    /// The format must be built in memory, and there are too many events.
    #[error(
        "make a profile for Firefox: more than {MAX_EVENTS} intervals and points; select a time, a class or a thread"
    )]
    TooMuch,
    /// The trace contains nothing that the format can show.
    #[error(
        "draw a flame graph: the selection contains no complete interval; select another part of the trace"
    )]
    Nothing,
}

/// The maximum number of intervals and points. A larger profile is refused, because it is built in
/// memory and no browser could open it.
pub const MAX_EVENTS: u64 = 5_000_000;
