//! The subject of a report: a trace and its summary, with names and times as they are shown.

use refit_instruments::analysis::Summary;
use refit_instruments::read::{Clock, Trace};

use crate::format;

/// A trace, and what it comes to.
pub(super) struct Report<'a> {
    pub(super) trace: &'a Trace,
    pub(super) summary: &'a Summary,
    pub(super) limit: f64,
}

impl Report<'_> {
    pub(super) fn clock(&self) -> &Clock {
        self.trace.clock()
    }

    pub(super) fn nanos(&self, ticks: f64) -> String {
        format::nanos(self.clock().span(ticks).round() as u64)
    }

    pub(super) fn name(&self, event: u32) -> String {
        self.trace.definition(event).map_or_else(|| format!("event {event}"), |d| d.name.clone())
    }

    pub(super) fn thread(&self, id: u32) -> String {
        match self.trace.thread(id) {
            _ if id == 0 => "-".into(),
            Some(thread) => format!("{} ({id})", thread.name),
            None => format!("{id}"),
        }
    }

    pub(super) fn class(&self, event: u32) -> &str {
        self.trace.definition(event).map_or("?", |definition| definition.class())
    }
}
