//! The processed-profile format of the Firefox Profiler (<https://profiler.firefox.com>).
//!
//! Intervals and points are exported as markers, which show times. The call tree is built from
//! samples, which show durations: one for each period in which the stack of a thread did not
//! change, weighted by its microseconds.
//!
//! With stacks, the time for which a thread was off the processors is a marker with the stack on
//! which it stood, and a sample of the intervals around it and of that stack.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags, MarkerFieldFormat,
    MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle,
    StaticSchemaMarker, StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp,
};

use super::error::{Error, MAX_EVENTS};
use super::names::{name, reason, stack_names, thread_name};
use crate::analysis::{Dumps, Filter, OffCpu, OffCpus, Span, Spans, Step};
use crate::definition::Role;
use crate::read::{Seen, Trace};

/// Writes the profile as JSON.
///
/// # Errors
///
/// The trace can no longer be read, the output cannot be written, or there are too many events
/// ([`MAX_EVENTS`]).
pub fn firefox(trace: &Trace, filter: &Filter, to: &mut dyn Write) -> Result<(), Error> {
    let mut writer = Writer::new(trace);
    let mut spans = Spans::new(Dumps::new(trace.dumps()));
    let mut off = OffCpus::default();
    for seen in trace.records() {
        let seen = seen?;
        let record = &seen.record;
        let definition = trace.definition(record.what.id());
        let wanted = filter.wants(definition, record.thread, seen.processor, record.time);
        // Until now the stack was as it is before this record.
        let before: Vec<u32> = spans.open(record.thread).iter().map(|open| open.event).collect();
        let role = definition.map_or(Role::Plain, |definition| definition.role);
        if role == Role::SwitchOut {
            writer.sample(&seen, &before, 0);
        }
        if let Some(one) = off.see(&seen, role).filter(|one| one.stack != 0) {
            writer.sample(&seen, &before, one.stack);
            if wanted {
                writer.off_cpu(&seen, &one)?;
            }
        }
        match spans.see(&seen) {
            step @ (Step::Begin(_) | Step::End(_)) => {
                writer.sample(&seen, &before, 0);
                if let Step::End(span) = step
                    && wanted
                {
                    writer.interval(&seen, &span)?;
                }
            }
            Step::Other if wanted => writer.point(&seen)?,
            _ => {}
        }
    }
    serde_json::to_writer(to, &writer.profile).map_err(io::Error::from)?;
    Ok(())
}

struct Writer<'a> {
    trace: &'a Trace,
    profile: Profile,
    /// The time at which the trace begins, in nanoseconds.
    begin: u64,
    processes: HashMap<u32, ProcessHandle>,
    threads: HashMap<u32, Row>,
    names: HashMap<u32, StringHandle>,
    /// The functions of recorded stacks, the outermost first.
    stacks: HashMap<u32, Vec<StringHandle>>,
    markers: u64,
}

/// A thread of the profile.
#[derive(Clone, Copy)]
struct Row {
    handle: ThreadHandle,
    /// The end of the samples, in nanoseconds since the beginning; a remainder of less than a
    /// microsecond is carried over.
    until: u64,
}

impl<'a> Writer<'a> {
    fn new(trace: &'a Trace) -> Self {
        let clock = trace.clock();
        let begin = clock.nanos(trace.span().map_or(0, |(first, _)| first));
        let wall = clock.pairs().first().map_or(0, |pair| {
            u64::try_from(i128::from(pair.real) + i128::from(begin) - i128::from(pair.raw))
                .unwrap_or(0)
        });
        let reference =
            ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(wall));
        let interval = SamplingInterval::from_nanos(1_000);
        let profile = Profile::new(&trace.head().command.join(" "), reference, interval);
        Writer {
            trace,
            profile,
            begin,
            processes: HashMap::new(),
            threads: HashMap::new(),
            names: HashMap::new(),
            stacks: HashMap::new(),
            markers: 0,
        }
    }

    fn nanos(&self, ticks: u64) -> u64 {
        self.trace.clock().nanos(ticks).saturating_sub(self.begin)
    }

    fn time(&self, ticks: u64) -> Timestamp {
        Timestamp::from_nanos_since_reference(self.nanos(ticks))
    }

    fn row(&mut self, thread: u32, now: u64) -> Row {
        if let Some(row) = self.threads.get(&thread) {
            return *row;
        }
        let trace = self.trace;
        let process = trace.thread(thread).map_or(thread, |known| known.process);
        let began = Timestamp::from_nanos_since_reference(0);
        let handle = *self.processes.entry(process).or_insert_with(|| {
            self.profile.add_process(&thread_name(trace, process), process, began)
        });
        let handle = self.profile.add_thread(handle, thread, began, thread == process);
        self.profile.set_thread_name(handle, &thread_name(trace, thread));
        let row = Row { handle, until: now };
        self.threads.insert(thread, row);
        row
    }

    fn name(&mut self, event: u32) -> StringHandle {
        let (trace, profile) = (self.trace, &mut self.profile);
        *self.names.entry(event).or_insert_with(|| profile.intern_string(&name(trace, event)))
    }

    /// Returns the stack of these intervals and of a recorded stack, if there is one.
    fn stack(
        &mut self,
        thread: ThreadHandle,
        events: &[u32],
        recorded: u32,
    ) -> Option<StackHandle> {
        let intervals: Vec<_> = events.iter().map(|event| self.name(*event)).collect();
        let (trace, profile) = (self.trace, &mut self.profile);
        let functions = self.stacks.entry(recorded).or_insert_with(|| {
            let names = stack_names(trace, recorded);
            names.iter().map(|name| profile.intern_string(name)).collect()
        });
        intervals.iter().chain(&*functions).fold(None, |parent, name| {
            let frame = FrameInfo {
                frame: Frame::Label(*name),
                category_pair: CategoryHandle::OTHER.into(),
                flags: FrameFlags::empty(),
            };
            let frame = profile.intern_frame(thread, frame);
            Some(profile.intern_stack(thread, parent, frame))
        })
    }

    /// Writes the marker of a thread that was off.
    fn off_cpu(&mut self, seen: &Seen, off: &OffCpu) -> Result<(), Error> {
        self.count_marker()?;
        let row = self.row(off.thread, self.nanos(off.begin));
        let timing = MarkerTiming::Interval(self.time(off.begin), self.time(off.end));
        let name = self.profile.intern_string("off processor");
        let fields = self.profile.intern_string(reason(off));
        let marker = Marker { name, fields, processor: seen.processor };
        let marker = self.profile.add_marker(row.handle, timing, marker);
        let stack = self.stack(row.handle, &[], off.stack);
        self.profile.set_marker_stack(row.handle, marker, stack);
        Ok(())
    }

    fn count_marker(&mut self) -> Result<(), Error> {
        self.markers += 1;
        if self.markers > MAX_EVENTS { Err(Error::TooMuch) } else { Ok(()) }
    }

    /// Attributes the time since the last sample of a thread to these intervals, and to a recorded
    /// stack inside of them.
    fn sample(&mut self, seen: &Seen, events: &[u32], recorded: u32) {
        let now = self.nanos(seen.record.time);
        let Row { handle, until } = self.row(seen.record.thread, now);
        let micros = now.saturating_sub(until) / 1_000;
        let until = until + micros * 1_000;
        self.threads.insert(seen.record.thread, Row { handle, until });
        if micros == 0 || events.is_empty() && recorded == 0 {
            return;
        }
        let stack = self.stack(handle, events, recorded);
        let weight = i32::try_from(micros).unwrap_or(i32::MAX);
        // Off the processors it has used none.
        let used = if recorded == 0 { micros } else { 0 };
        let (time, delta) = (self.time(seen.record.time), CpuDelta::from_micros(used));
        self.profile.add_sample(handle, time, stack, delta, weight);
    }

    fn interval(&mut self, seen: &Seen, span: &Span) -> Result<(), Error> {
        let timing = MarkerTiming::Interval(self.time(span.open.begin), self.time(span.end));
        let begun = Seen {
            processor: span.open.processor,
            record: crate::record::Record { payload: span.open.payload, ..seen.record },
        };
        self.marker(&begun, timing)
    }

    fn point(&mut self, seen: &Seen) -> Result<(), Error> {
        self.marker(seen, MarkerTiming::Instant(self.time(seen.record.time)))
    }

    fn marker(&mut self, seen: &Seen, timing: MarkerTiming) -> Result<(), Error> {
        self.count_marker()?;
        let record = &seen.record;
        let row = self.row(record.thread, self.nanos(record.time));
        let definition = self.trace.definition(record.what.id());
        let fields = definition.map(|definition| {
            let fields = definition.values(record).map(|(name, value)| format!("{name} {value}"));
            fields.collect::<Vec<_>>().join(", ")
        });
        let name = self.name(record.what.id());
        let fields = self.profile.intern_string(&fields.unwrap_or_default());
        let marker = Marker { name, fields, processor: seen.processor };
        self.profile.add_marker(row.handle, timing, marker);
        Ok(())
    }
}

/// An interval or a point.
struct Marker {
    name: StringHandle,
    fields: StringHandle,
    processor: u32,
}

impl StaticSchemaMarker for Marker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "refit";
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name} {marker.data.fields}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("{marker.name}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        StaticSchemaMarkerField {
            key: "fields",
            label: "Fields",
            format: MarkerFieldFormat::String,
            flags: MarkerFieldFlags::SEARCHABLE,
        },
        StaticSchemaMarkerField {
            key: "processor",
            label: "Processor",
            format: MarkerFieldFormat::Integer,
            flags: MarkerFieldFlags::empty(),
        },
    ];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.fields
    }

    fn number_field_value(&self, _: u32) -> f64 {
        self.processor.into()
    }
}
