//! Perfetto's protobuf format: a timeline with a track per thread, per processor and for changes.
//!
//! The parts of a trace are represented as follows:
//!
//! - Intervals are slices on the track of their thread. Changes and their phases are slices on the
//!   track of the change.
//! - Context switches, if the trace contains them, are slices on the track of the processor.
//! - With stacks, the time for which a thread was off the processors is a slice on its track, with
//!   the stack on which it stood.
//! - Points are instants, samples are counters, and dumps are slices on a track of their own.
//! - [`Phase::Out`] and [`Phase::In`] with the same first word are a flow. A request that waited
//!   for a change has a flow to an instant on the track of the change at the begin of the wait.
//! - Losses are `previous_packet_dropped`, an instant on the track of the processor with their
//!   number and cause, and `TraceStats`.
//! - Clocks are a snapshot per reading. Times are in `CLOCK_MONOTONIC_RAW`, which Perfetto converts
//!   with the snapshots.
//!
//! The records of each processor are one packet sequence. Names are written in full and not
//! interned, so that no packet depends on another and a damaged file can be read from any point.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use super::error::Error;
use super::names::{name, reason, thread_name};
use super::packets::{self, Packets, Type};
use super::protobuf::Message;
use crate::analysis::{Delay, Dumps, Filter, OffCpu, OffCpus, Open, Spans, Step, delays};
use crate::block::Frame;
use crate::definition::{Definition, Role, Value};
use crate::read::{Gap, Losses, Seen, Trace};
use crate::record::Phase;

/// The sequence of packets that belong to no processor; those of processors follow it.
const OWN: u32 = 1;

/// A track. Its ID contains the kind in the upper bits and the number in the lower ones.
#[derive(Clone, Copy)]
enum Track {
    Processors,
    Dumps,
    Changes,
    Processor(u32),
    Process(u32),
    Thread(u32),
    Counter(u32),
    Change(u64),
}

impl Track {
    fn id(self) -> u64 {
        let (kind, number) = match self {
            Track::Processors => (1, 0),
            Track::Dumps => (2, 0),
            Track::Changes => (3, 0),
            Track::Processor(number) => (4, number.into()),
            Track::Process(number) => (5, number.into()),
            Track::Thread(number) => (6, number.into()),
            Track::Counter(number) => (7, number.into()),
            Track::Change(number) => (8, number),
        };
        // The upper byte contains the kind; IDs of changes are counted and do not reach it.
        kind << 56 | number & ((1 << 56) - 1)
    }
}

/// Writes a trace in Perfetto's format.
///
/// # Errors
///
/// The trace can no longer be read, or the output cannot be written.
pub fn perfetto(trace: &Trace, filter: &Filter, to: &mut dyn Write) -> Result<(), Error> {
    let mut writer = Writer {
        trace,
        packets: Packets::new(to, !trace.clock().pairs().is_empty()),
        spans: Spans::new(Dumps::new(trace.dumps())),
        delays: by_request(delays(trace, filter)?),
        off: OffCpus::default(),
        stacks: HashMap::new(),
        described: HashSet::new(),
        running: HashMap::new(),
        dropped: HashSet::new(),
    };
    writer.begin()?;
    let mut gaps = trace.gaps().iter().peekable();
    for seen in trace.records() {
        let seen = seen?;
        while let Some(gap) = gaps.next_if(|gap| gap.end <= seen.record.time) {
            writer.gap(gap)?;
        }
        writer.record(&seen, filter)?;
    }
    gaps.try_for_each(|gap| writer.gap(gap))?;
    writer.end()?;
    Ok(())
}

/// Delays by the thread and the begin of their requests, each with the number of its flow.
type Delays = HashMap<(u32, u64), Vec<(u64, Delay)>>;

fn by_request(delays: Vec<Delay>) -> Delays {
    let mut all = Delays::new();
    for (number, delay) in delays.into_iter().enumerate() {
        all.entry((delay.thread, delay.begin)).or_default().push((number as u64 + 1, delay));
    }
    all
}

struct Writer<'a> {
    trace: &'a Trace,
    packets: Packets<'a>,
    spans: Spans,
    delays: Delays,
    off: OffCpus,
    /// The functions of recorded stacks, the innermost first.
    stacks: HashMap<u32, Vec<String>>,
    /// The tracks whose descriptor has been written.
    described: HashSet<u64>,
    /// The thread that has each processor, according to the slices written so far.
    running: HashMap<u32, u32>,
    /// Processors whose next packet must report that records before it are lost.
    dropped: HashSet<u32>,
}

impl Writer<'_> {
    /// Writes clocks, tracks and dumps.
    fn begin(&mut self) -> io::Result<()> {
        for pair in self.trace.clock().pairs() {
            self.packets.clocks(OWN, pair)?;
        }
        self.describe(Track::Processors, |id| packets::named(id, None, "processors"))?;
        for processor in self.trace.processors() {
            self.processor(processor)?;
        }
        let trace = self.trace;
        for thread in trace.threads() {
            self.thread(thread.id)?;
        }
        for dump in trace.dumps() {
            let track = self.describe(Track::Dumps, |id| packets::named(id, None, "dumps"))?;
            let begin =
                packets::event(Type::Begin, track).text(23, &format!("dump {}", dump.number));
            self.packets.event(OWN, self.time(dump.begin), false, &begin)?;
            let end = packets::event(Type::End, track);
            self.packets.event(OWN, self.time(dump.end), false, &end)?;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let gaps = self.trace.gaps();
        let lost = |processor| {
            let of = gaps.iter().filter(|gap| gap.processor == processor);
            of.fold(0_u64, |sum, gap| sum.saturating_add(gap.lost.sum()))
        };
        self.packets.losses(OWN, self.trace.processors().map(lost))
    }

    fn time(&self, ticks: u64) -> u64 {
        self.trace.clock().nanos(ticks)
    }

    /// Returns the ID of a track, and writes its descriptor if that has not been done.
    fn describe(&mut self, track: Track, as_what: impl FnOnce(u64) -> Message) -> io::Result<u64> {
        let id = track.id();
        if self.described.insert(id) {
            self.packets.track(OWN, &as_what(id))?;
        }
        Ok(id)
    }

    fn processor(&mut self, number: u32) -> io::Result<u64> {
        let name = format!("processor {number}");
        let parent = Some(Track::Processors.id());
        self.describe(Track::Processor(number), |id| packets::named(id, parent, &name))
    }

    /// Returns the track of a thread; an unknown thread is shown as a process of its own.
    fn thread(&mut self, number: u32) -> io::Result<u64> {
        let known = self.trace.thread(number);
        let process = known.map_or(number, |thread| thread.process);
        let name = thread_name(self.trace, number);
        let command =
            self.trace.thread(process).map_or(name.as_str(), |thread| thread.name.as_str());
        self.describe(Track::Process(process), |id| packets::process(id, process, command))?;
        self.describe(Track::Thread(number), |id| packets::thread(id, process, number, &name))
    }

    /// Returns the track of an interval.
    fn track_of(&mut self, thread: u32, role: Role, open: &Open) -> io::Result<u64> {
        if role != Role::Change {
            return self.thread(thread);
        }
        self.change(open.payload[0])
    }

    fn change(&mut self, number: u64) -> io::Result<u64> {
        let parent = self.describe(Track::Changes, |id| packets::named(id, None, "changes"))?;
        let name = format!("change {number}");
        self.describe(Track::Change(number), |id| packets::named(id, Some(parent), &name))
    }

    /// Writes an event of a processor's sequence.
    fn put(&mut self, processor: u32, ticks: u64, event: &Message) -> io::Result<()> {
        let dropped = self.dropped.remove(&processor);
        let sequence = OWN.saturating_add(1).saturating_add(processor);
        self.packets.event(sequence, self.time(ticks), dropped, event)
    }

    /// Writes the lost records of a gap.
    fn gap(&mut self, gap: &Gap) -> io::Result<()> {
        self.dropped.insert(gap.processor);
        let track = self.processor(gap.processor)?;
        let name = format!("{} records lost", gap.lost.sum());
        let event = packets::event(Type::Instant, track).text(23, &name).text(22, "loss");
        let event = causes(&gap.lost).fold(event, |event, (cause, lost)| {
            event.message(4, &Message::new().text(10, cause).uint(3, lost))
        });
        self.put(gap.processor, gap.end, &event)
    }

    fn record(&mut self, seen: &Seen, filter: &Filter) -> io::Result<()> {
        let (record, processor) = (&seen.record, seen.processor);
        let event = record.what.id();
        let definition = self.trace.definition(event);
        let role = definition.map_or(Role::Plain, |definition| definition.role);
        let wanted = |thread| filter.wants(definition, thread, processor, record.time);
        if let Some(off) = self.off.see(seen, role).filter(|off| off.stack != 0)
            && wanted(off.thread)
        {
            self.off_cpu(processor, &off)?;
        }
        match self.spans.see(seen) {
            Step::Begin(_) if wanted(record.thread) => self.opened(seen, role, definition),
            Step::End(span) => {
                let given_up = self.spans.given_up().to_vec();
                for open in given_up.iter().chain([&span.open]) {
                    self.closed(seen, open, filter)?;
                }
                Ok(())
            }
            Step::Other if wanted(record.thread) => self.point(seen, role, definition),
            _ => Ok(()),
        }
    }

    fn opened(
        &mut self,
        seen: &Seen,
        role: Role,
        definition: Option<&Definition>,
    ) -> io::Result<()> {
        let record = &seen.record;
        let Some(open) = self.spans.open(record.thread).last().copied() else { return Ok(()) };
        let track = self.track_of(record.thread, role, &open)?;
        let mut event = described(packets::event(Type::Begin, track), seen, definition);
        let delays = match role {
            Role::Request => self.delays.remove(&(record.thread, record.time)).unwrap_or_default(),
            _ => Vec::new(),
        };
        for (flow, _) in &delays {
            event = event.fixed64(47, *flow);
        }
        self.put(seen.processor, record.time, &event)?;
        for (flow, delay) in delays {
            let track = self.change(delay.change)?;
            let name = format!("delays request {}", delay.request);
            let event = packets::event(Type::Instant, track).text(23, &name).fixed64(48, flow);
            self.packets.event(OWN, self.time(delay.waited), false, &event)?;
        }
        Ok(())
    }

    /// Ends an interval, with the record of its end or with that of an enclosing one.
    fn closed(&mut self, seen: &Seen, open: &Open, filter: &Filter) -> io::Result<()> {
        let definition = self.trace.definition(open.event);
        // The same test as at its begin; otherwise the slice of another interval would be closed.
        if !filter.wants(definition, seen.record.thread, open.processor, open.begin) {
            return Ok(());
        }
        let role = definition.map_or(Role::Plain, |definition| definition.role);
        let track = self.track_of(seen.record.thread, role, open)?;
        self.put(seen.processor, seen.record.time, &packets::event(Type::End, track))
    }

    fn point(
        &mut self,
        seen: &Seen,
        role: Role,
        definition: Option<&Definition>,
    ) -> io::Result<()> {
        let (record, processor) = (&seen.record, seen.processor);
        match (role, record.what.phase()) {
            (Role::SwitchIn, _) => {
                self.leaves(seen)?;
                let track = self.processor(processor)?;
                let name = match self.trace.thread(record.thread) {
                    Some(thread) => format!("{} ({})", thread.name, thread.id),
                    None => format!("thread {}", record.thread),
                };
                self.running.insert(processor, record.thread);
                self.put(
                    processor,
                    record.time,
                    &packets::event(Type::Begin, track).text(23, &name),
                )
            }
            (Role::SwitchOut, _) => self.leaves(seen),
            (_, Some(Phase::Sample)) => self.sample(seen, definition),
            (_, phase) => {
                let track = self.thread(record.thread)?;
                let mut event = described(packets::event(Type::Instant, track), seen, definition);
                // Flows of delays have small numbers; these differ from them in their upper bits.
                let flow = record.payload[0] ^ (u64::from(record.what.id()) | 1 << 31) << 32;
                event = match phase {
                    Some(Phase::Out) => event.fixed64(47, flow),
                    Some(Phase::In) => event.fixed64(48, flow),
                    _ => event,
                };
                self.put(processor, record.time, &event)
            }
        }
    }

    /// Writes the slice of a thread that was off.
    fn off_cpu(&mut self, processor: u32, off: &OffCpu) -> io::Result<()> {
        let track = self.thread(off.thread)?;
        let trace = self.trace;
        let labels = || trace.stack(off.stack).flat_map(Frame::labels).collect();
        let names = self.stacks.entry(off.stack).or_insert_with(labels);
        let name = format!("{} in {}", reason(off), names.first().map_or("?", String::as_str));
        let stack = Message::new().text(10, "stack").text(6, &names.join("\n"));
        let begin = packets::event(Type::Begin, track).text(23, &name).text(22, "off-cpu");
        self.put(processor, off.begin, &begin.message(4, &stack))?;
        self.put(processor, off.end, &packets::event(Type::End, track))
    }

    /// Ends the slice of the thread that has the processor.
    fn leaves(&mut self, seen: &Seen) -> io::Result<()> {
        if self.running.remove(&seen.processor).is_none() {
            return Ok(());
        }
        let track = self.processor(seen.processor)?;
        self.put(seen.processor, seen.record.time, &packets::event(Type::End, track))
    }

    fn sample(&mut self, seen: &Seen, definition: Option<&Definition>) -> io::Result<()> {
        let event = seen.record.what.id();
        let name = name(self.trace, event);
        let track = self.describe(Track::Counter(event), |id| packets::counter(id, &name))?;
        let value = definition.and_then(|definition| definition.values(&seen.record).next());
        let counter = packets::event(Type::Counter, track);
        let counter = match value {
            Some((_, Value::Signed(value))) => counter.int(30, value),
            Some((_, Value::Float(value))) => counter.double(44, value),
            _ => counter.int(30, i64::try_from(seen.record.payload[0]).unwrap_or(i64::MAX)),
        };
        self.put(seen.processor, seen.record.time, &counter)
    }
}

/// Returns the causes that apply.
fn causes(lost: &Losses) -> impl Iterator<Item = (&'static str, u64)> {
    lost.causes().into_iter().filter(|(_, lost)| *lost > 0)
}

/// Sets the name, the category and the fields of an event.
fn described(event: Message, seen: &Seen, definition: Option<&Definition>) -> Message {
    let Some(definition) = definition else {
        return event.text(23, &format!("event {}", seen.record.what.id()));
    };
    let event = event.text(23, &definition.name).text(22, &definition.manager);
    definition.values(&seen.record).fold(event, |event, (name, value)| {
        let annotation = Message::new().text(10, name);
        let annotation = match value {
            Value::Unsigned(value) | Value::Ticks(value) => annotation.uint(3, value),
            Value::Signed(value) => annotation.int(4, value),
            Value::Float(value) => annotation.double(5, value),
            Value::Address(value) => annotation.uint(7, value),
        };
        event.message(4, &annotation)
    })
}
