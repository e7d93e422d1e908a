//! One JSON object per line: the trace, then records and losses in the order of time.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::error::Error;
use crate::analysis::Filter;
use crate::block::{End, Head};
use crate::definition::{Definition, Value};
use crate::read::{Gap, Losses, Seen, Trace};
use crate::record::{Phase, Record};

#[derive(serde::Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line<'a> {
    Trace {
        #[serde(flatten)]
        head: &'a Head,
        ticks_per_ns: f64,
        clock_error_ns: Option<u64>,
        records: u64,
        lost: Losses,
        end: Option<&'a End>,
    },
    Record {
        /// `CLOCK_MONOTONIC_RAW`.
        time_ns: u64,
        ticks: u64,
        processor: u32,
        thread: u32,
        id: u32,
        event: Option<&'a str>,
        phase: Option<&'static str>,
        fields: Fields<'a>,
    },
    Lost {
        time_ns: u64,
        processor: u32,
        lost: Losses,
    },
}

/// The fields of a record by name, or the payload if the event has no definition.
struct Fields<'a> {
    definition: Option<&'a Definition>,
    record: &'a Record,
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.definition {
            None => map.serialize_entry("payload", &self.record.payload)?,
            Some(definition) => {
                for (name, value) in definition.values(self.record) {
                    match value {
                        Value::Unsigned(value) | Value::Ticks(value) => {
                            map.serialize_entry(name, &value)?
                        }
                        Value::Signed(value) => map.serialize_entry(name, &value)?,
                        // Numbers that JSON cannot represent are null.
                        Value::Float(value) => map.serialize_entry(name, &value)?,
                        Value::Address(value) => {
                            map.serialize_entry(name, &format!("{value:#x}"))?
                        }
                    }
                }
            }
        }
        map.end()
    }
}

/// Writes the lines.
///
/// # Errors
///
/// The trace can no longer be read, or the output cannot be written.
pub fn ndjson(trace: &Trace, filter: &Filter, to: &mut dyn Write) -> Result<(), Error> {
    let clock = trace.clock();
    let about = Line::Trace {
        head: trace.head(),
        ticks_per_ns: clock.rate(),
        clock_error_ns: clock.error(),
        records: trace.len(),
        lost: trace.losses(),
        end: trace.end(),
    };
    line(to, &about)?;
    let mut gaps = trace.gaps().iter().peekable();
    let lost = |gap: &Gap| Line::Lost {
        time_ns: clock.nanos(gap.end),
        processor: gap.processor,
        lost: gap.lost,
    };
    for seen in trace.records() {
        let Seen { processor, record } = seen?;
        while let Some(gap) = gaps.next_if(|gap| gap.end <= record.time) {
            line(to, &lost(gap))?;
        }
        let definition = trace.definition(record.what.id());
        if !filter.wants(definition, record.thread, processor, record.time) {
            continue;
        }
        let object = Line::Record {
            time_ns: clock.nanos(record.time),
            ticks: record.time,
            processor,
            thread: record.thread,
            id: record.what.id(),
            event: definition.map(|definition| definition.name.as_str()),
            phase: record.what.phase().map(word),
            fields: Fields { definition, record: &record },
        };
        line(to, &object)?;
    }
    gaps.try_for_each(|gap| line(to, &lost(gap)))?;
    Ok(())
}

fn line(to: &mut dyn Write, line: &Line<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Point => "point",
        Phase::Begin => "begin",
        Phase::End => "end",
        Phase::Sample => "sample",
        Phase::Out => "out",
        Phase::In => "in",
    }
}
