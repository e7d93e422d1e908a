//! Events: what happens, written as records.

use super::{Core, Instrument};
use crate::definition::{FieldKind, Role};
use crate::record::Phase;
use crate::session::{Kind, Link};

/// An event of the program.
#[derive(Debug)]
pub struct Event(Core);

impl Event {
    /// An event of this name (`Class::method`, or what the program likes) that belongs to this manager.
    pub const fn new(manager: &'static str, name: &'static str) -> Self {
        Self(Core::new(Kind::Event, manager, name))
    }

    /// Says what the payload means: up to four fields, cut from its first byte on.
    #[must_use]
    pub const fn fields(mut self, fields: &'static [(&'static str, FieldKind)]) -> Self {
        self.0.fields = fields;
        self
    }

    /// Says what readers may make of it.
    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.0.role = role;
        self
    }

    /// Makes it a customised instrument: suspended whenever `parent` is.
    #[must_use]
    pub const fn inherits(mut self, parent: &'static Event) -> Self {
        self.0.parent = Some(&parent.0);
        self
    }

    /// Has it write to where this link leads, and not to the session of this process.
    pub(crate) fn lead_to(&'static self, link: &'static Link) {
        self.0.link.set(link);
    }

    /// It happened.
    #[inline(always)]
    pub fn record(&'static self, payload: [u64; 2]) {
        self.write(Phase::Point, payload);
    }

    /// It begins in this thread.
    #[inline(always)]
    pub fn begin(&'static self, payload: [u64; 2]) {
        self.write(Phase::Begin, payload);
    }

    /// It ends in this thread.
    #[inline(always)]
    pub fn end(&'static self, payload: [u64; 2]) {
        self.write(Phase::End, payload);
    }

    /// It begins now, and ends when what is returned is dropped.
    #[inline(always)]
    #[must_use = "it ends at once if it is not kept"]
    pub fn span(&'static self, payload: [u64; 2]) -> Span {
        self.begin(payload);
        Span { event: self, payload }
    }

    /// It has this value now.
    #[inline(always)]
    pub fn sample(&'static self, value: u64) {
        self.write(Phase::Sample, [value, 0]);
    }

    /// Something leaves here that arrives where [`Event::arrive`] has the same key.
    #[inline(always)]
    pub fn leave(&'static self, key: u64, more: u64) {
        self.write(Phase::Out, [key, more]);
    }

    /// It arrives.
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

/// Writes the record. Out of line, and cold in the eyes of the compiler: it then makes code around instruments as if they
/// were not there, and who is suspended pays for two instructions. (WATER, whose procedures run for 20 to 60 ns, took
/// 15 to 30 per cent longer with all of this inline and suspended, and takes 3 to 6 like this; a record costs 2 ns more.)
///
/// The payload comes as two numbers: an array would lie in memory, and be put there by who is suspended as well.
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

/// Ends an event when it is dropped, also when the thread panics; with the payload that it began with.
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
