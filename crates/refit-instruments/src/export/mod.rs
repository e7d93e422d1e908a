//! The export of traces to the formats of other tools.
//!
//! Exported times are as measured. The cost of measuring is subtracted only in reports, which can
//! show the error as well.

mod firefox;
mod folded;
mod ndjson;
mod packets;
mod perfetto;
mod protobuf;

use std::io;

pub use self::firefox::{MAX_EVENTS, firefox};
pub use self::folded::{draw_stacks, flame_graph, folded, frame};
pub use self::ndjson::ndjson;
pub use self::perfetto::perfetto;

use crate::read::{self, Trace};

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
        "make a profile for Firefox: more than {MAX_EVENTS} intervals and points; choose a time, a class or a thread"
    )]
    TooMuch,
    /// The trace contains nothing that the format can show.
    #[error(
        "draw a flame graph: the trace has no whole interval that was asked for; choose another part of it"
    )]
    Nothing,
}

/// Returns the name of an event.
fn name(trace: &Trace, event: u32) -> String {
    trace.definition(event).map_or_else(|| format!("event {event}"), |known| known.name.clone())
}

/// Returns the name of a thread, without its ID.
fn thread_name(trace: &Trace, id: u32) -> String {
    trace.thread(id).map_or_else(|| format!("thread {id}"), |thread| thread.name.clone())
}
