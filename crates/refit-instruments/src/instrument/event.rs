//! Events, which are written as records.

use super::{Core, Instrument};
use crate::definition::{FieldKind, Role};
use crate::record::Phase;
use crate::session::{Kind, Link};

/// An event of the program.
#[derive(Debug)]
pub struct Event(Core);

impl Event {
    /// Creates an event with a name (`Class::method`, or any other) that belongs to a manager.
    pub const fn new(manager: &'static str, name: &'static str) -> Self {
        Self(Core::new(Kind::Event, manager, name))
    }

    /// Sets the meaning of the payload: up to four fields, from its first byte on.
    #[must_use]
    pub const fn fields(mut self, fields: &'static [(&'static str, FieldKind)]) -> Self {
        self.0.fields = fields;
        self
    }

    /// Sets the role of the event in analyses.
    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.0.role = role;
        self
    }

    /// Makes this a customised instrument, which is suspended whenever `parent` is.
    #[must_use]
    pub const fn inherits(mut self, parent: &'static Event) -> Self {
        self.0.parent = Some(&parent.0);
        self
    }

    /// Makes the event write to the target of `link` instead of the session of this process.
    pub(crate) fn lead_to(&'static self, link: &'static Link) {
        self.0.link.set(link);
    }

    /// Records that the event happened.
    #[inline(always)]
    pub fn record(&'static self, payload: [u64; 2]) {
        self.write(Phase::Point, payload);
    }

    /// Records that the event begins in this thread.
    #[inline(always)]
    pub fn begin(&'static self, payload: [u64; 2]) {
        self.write(Phase::Begin, payload);
    }

    /// Records that the event ends in this thread.
    #[inline(always)]
    pub fn end(&'static self, payload: [u64; 2]) {
        self.write(Phase::End, payload);
    }

    /// Records that the event begins now, and that it ends when the returned guard is dropped.
    #[inline(always)]
    #[must_use = "it ends at once if it is not kept"]
    pub fn span(&'static self, payload: [u64; 2]) -> Span {
        self.begin(payload);
        Span { event: self, payload }
    }

    /// Records the current value of the event.
    #[inline(always)]
    pub fn sample(&'static self, value: u64) {
        self.write(Phase::Sample, [value, 0]);
    }

    /// Records that something departs here and arrives where [`Event::arrive`] has the same key.
    #[inline(always)]
    pub fn leave(&'static self, key: u64, more: u64) {
        self.write(Phase::Out, [key, more]);
    }

    /// Records that something arrives; see [`Event::leave`].
    #[inline(always)]
    pub fn arrive(&'static self, key: u64, more: u64) {
        self.write(Phase::In, [key, more]);
    }

    #[inline(always)]
    fn write(&'static self, phase: Phase, payload: [u64; 2]) {
        if let Some(link) = self.0.on() {
            write(&self.0, link, phase, payload[0], payload[1]);
        }
    }
}

/// Writes the record. The function is not inlined, and is marked as cold, so that the compiler
/// generates the code around instruments as if they were not there; a suspended instrument then
/// costs two instructions. (WATER, whose procedures run for 20 to 60 ns, took 15 to 30 per cent
/// longer with inlined, suspended instruments. With this function it takes 3 to 6 per cent longer,
/// and a record costs 2 ns more.)
///
/// The payload is passed as two numbers, because an array would be stored in memory even for
/// suspended instruments.
#[cold]
#[inline(never)]
fn write(core: &'static Core, link: &'static Link, phase: Phase, first: u64, second: u64) {
    core.each(link, |id, area| area.record(id, phase, [first, second]));
}

impl Instrument for Event {
    fn core(&'static self) -> &'static Core {
        &self.0
    }
}

/// Records the end of an event when it is dropped, even during a panic, with the payload of its
/// begin.
#[derive(Debug)]
pub struct Span {
    event: &'static Event,
    payload: [u64; 2],
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        self.event.end(self.payload);
    }
}
