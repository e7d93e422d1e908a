//! The names by which exports call events and threads.

use crate::analysis::OffCpu;
use crate::block::Frame;
use crate::read::Trace;

/// Returns the name of an event.
pub(super) fn name(trace: &Trace, event: u32) -> String {
    trace.definition(event).map_or_else(|| format!("event {event}"), |known| known.name.clone())
}

/// Returns the names of the functions of a stack, the outermost first.
pub(super) fn stack_names(trace: &Trace, stack: u32) -> Vec<String> {
    let innermost_first = trace.stack(stack).flat_map(Frame::labels);
    let mut names: Vec<String> = innermost_first.collect();
    names.reverse();
    names
}

/// Returns why a thread had no processor.
pub(super) fn reason(off: &OffCpu) -> &'static str {
    if off.preempted { "preempted" } else { "waits" }
}

/// Returns the name of a thread, without its ID.
pub(super) fn thread_name(trace: &Trace, id: u32) -> String {
    trace.thread(id).map_or_else(|| format!("thread {id}"), |thread| thread.name.clone())
}
