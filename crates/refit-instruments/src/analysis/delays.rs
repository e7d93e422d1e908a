//! Delays of requests by changes.
//!
//! A request was delayed by a change if its thread waited for the change during the request: it
//! contains an interval of [`Role::Wait`] whose first field is called [`CHANGE`].

use super::filter::Filter;
use super::spans::{Spans, Step};
use crate::definition::{Definition, Role};
use crate::read::{Error, Trace};

/// The name of the first field of waits for a change, which is the ID of the change.
pub const CHANGE: &str = "change";

/// A request that waited for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The thread of the request.
    pub thread: u32,
    /// The ID of the request.
    pub request: u64,
    /// The begin of the request, in ticks.
    pub begin: u64,
    /// The ID of the change.
    pub change: u64,
    /// The begin of the wait, in ticks.
    pub waited: u64,
    /// The duration of the wait, in ticks.
    pub ticks: u64,
}

/// Returns all delays, in the order in which the waits ended.
///
/// # Errors
///
/// A file can no longer be read.
pub fn delays(trace: &Trace, filter: &Filter) -> Result<Vec<Delay>, Error> {
    let role = |event| trace.definition(event).map_or(Role::Plain, |definition| definition.role);
    let mut spans = Spans::default();
    let mut found = Vec::new();
    for seen in trace.records() {
        let seen = seen?;
        let Step::End(span) = spans.see(&seen) else { continue };
        let definition = trace.definition(span.open.event);
        if !definition.is_some_and(is_for_change)
            || !filter.wants_place(span.thread, span.processor, span.end)
        {
            continue;
        }
        let around = spans.open(span.thread);
        let request = around.iter().rfind(|open| role(open.event) == Role::Request);
        found.extend(request.map(|request| Delay {
            thread: span.thread,
            request: request.payload[0],
            begin: request.begin,
            change: span.open.payload[0],
            waited: span.open.begin,
            ticks: span.ticks(),
        }));
    }
    Ok(found)
}

/// Returns whether intervals of this event are waits for a change.
fn is_for_change(definition: &Definition) -> bool {
    definition.role == Role::Wait
        && definition.fields.first().is_some_and(|field| field.name == CHANGE)
}
