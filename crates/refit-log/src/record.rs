//! An event as the ring keeps it: cheap to make, since it is made while something happens; the
//! [`Event`] that people and programs read is made of it when somebody reads.

use std::cell::OnceCell;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::thread;

use tracing::Metadata;
use tracing::field::{Field, Visit};

use crate::event::Event;

/// An event.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    time_ns: u64,
    metadata: &'static Metadata<'static>,
    thread: Arc<str>,
    /// The spans that it happened in, outermost first.
    spans: Vec<Arc<str>>,
    fields: Fields,
}

impl Record {
    pub(crate) fn new(time_ns: u64, event: &tracing::Event<'_>, spans: Vec<Arc<str>>) -> Self {
        let mut fields = Fields::default();
        event.record(&mut fields);
        Self { time_ns, metadata: event.metadata(), thread: thread_name(), spans, fields }
    }

    /// Returns the event for readers, under this number.
    pub(crate) fn event(&self, number: u64) -> Event {
        let (mut message, mut others) = (String::new(), Vec::new());
        for (name, value) in self.fields.iter() {
            if name == MESSAGE {
                message = value.to_owned();
            } else {
                others.push((name.to_owned(), value.to_owned()));
            }
        }
        Event {
            number,
            time_ns: self.time_ns,
            level: self.metadata.level().as_str().into(),
            target: self.metadata.target().into(),
            thread: (*self.thread).to_owned(),
            spans: self.spans.iter().map(|span| (**span).to_owned()).collect(),
            message,
            fields: others,
        }
    }
}

/// The field that holds what happened.
const MESSAGE: &str = "message";

/// Fields of an event or a span, formatted into one text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// All values, one after the other.
    values: String,
    /// Names, and where their values end.
    ends: Vec<(&'static str, usize)>,
}

impl Fields {
    fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let mut begin = 0;
        self.ends.iter().map(move |&(name, end)| {
            let value = &self.values[begin..end];
            begin = end;
            (name, value)
        })
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.values.push_str(value);
        self.ends.push((field.name(), self.values.len()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = write!(self.values, "{value:?}");
        self.ends.push((field.name(), self.values.len()));
    }
}

impl fmt::Display for Fields {
    /// `name=value`, separated by spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.iter().enumerate() {
            let gap = if i == 0 { "" } else { " " };
            write!(f, "{gap}{name}={value}")?;
        }
        Ok(())
    }
}

/// Returns the name of the thread that runs.
fn thread_name() -> Arc<str> {
    thread_local! {
        static NAME: OnceCell<Arc<str>> = const { OnceCell::new() };
    }
    let name = || Arc::from(thread::current().name().unwrap_or_default());
    // A thread that ends has no such name any more.
    NAME.try_with(|of| Arc::clone(of.get_or_init(name))).unwrap_or_else(|_| Arc::from(""))
}
