//! Traces in the formats of other tools.
//!
//! Times are as measured: what measuring costs is taken out in reports only, where the error can stand beside it.

mod firefox;
mod folded;
mod ndjson;
mod packets;
mod perfetto;
mod protobuf;

use std::io;

pub use self::firefox::{MOST, firefox};
pub use self::folded::{draw_stacks, flame_graph, folded, frame};
pub use self::ndjson::ndjson;
pub use self::perfetto::perfetto;

use crate::read::{self, Trace};

/// Why an export ended before it was done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be read any more.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// The output cannot be written.
    #[error("write the export: {0}; make room, or name another file")]
    Write(#[from] io::Error),
    /// The format has to be made in memory, and there is too much.
    #[error(
        "make a profile for Firefox: more than {MOST} intervals and points; choose a time, a class or a thread"
    )]
    TooMuch,
    /// There is nothing that the format could show.
    #[error(
        "draw a flame graph: the trace has no whole interval that was asked for; choose another part of it"
    )]
    Nothing,
}

/// What an event is called.
fn name(trace: &Trace, event: u32) -> String {
    trace.definition(event).map_or_else(|| format!("event {event}"), |known| known.name.clone())
}

/// What a thread is called, without its number.
fn thread_name(trace: &Trace, id: u32) -> String {
    trace.thread(id).map_or_else(|| format!("thread {id}"), |thread| thread.name.clone())
}
