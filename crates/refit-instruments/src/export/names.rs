//! The names by which exports call events and threads.

use crate::read::Trace;

/// Returns the name of an event.
pub(super) fn name(trace: &Trace, event: u32) -> String {
    trace.definition(event).map_or_else(|| format!("event {event}"), |known| known.name.clone())
}

/// Returns the name of a thread, without its ID.
pub(super) fn thread_name(trace: &Trace, id: u32) -> String {
    trace.thread(id).map_or_else(|| format!("thread {id}"), |thread| thread.name.clone())
}
