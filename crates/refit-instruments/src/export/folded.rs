//! Folded stacks, with a line per stack and its time in nanoseconds, and the flame graph that
//! inferno draws from them.
//!
//! A stack consists of the thread's name and the open intervals, the outermost first. Its time
//! excludes intervals further inside. Intervals without an end have no time and are omitted.
//!
//! Off the processors, a stack consists of the thread's name, the functions on the stack on which
//! it stood, and `[preempted]` if others had the processor. Its time is that for which it was off.

use std::collections::HashMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use super::error::Error;
use super::names::{name, stack_names, thread_name};
use crate::analysis::{Dumps, Filter, OffCpuSums, OffCpus, Spans, Step};
use crate::definition::Role;
use crate::read::Trace;

/// The stacks that are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The intervals that programs have recorded.
    Intervals,
    /// The stacks of threads that were off the processors.
    OffCpu,
}

/// Writes folded stacks, sorted.
///
/// # Errors
///
/// The trace can no longer be read, or the output cannot be written.
pub fn folded(
    trace: &Trace,
    filter: &Filter,
    what: Folded,
    to: &mut dyn Write,
) -> Result<(), Error> {
    for line in lines(trace, filter, what)? {
        writeln!(to, "{line}")?;
    }
    Ok(())
}

/// Draws a flame graph as SVG.
///
/// # Errors
///
/// The errors of [`folded`], or [`Error::Nothing`] if there is no stack to draw.
pub fn flame_graph(
    trace: &Trace,
    filter: &Filter,
    what: Folded,
    to: &mut dyn Write,
) -> Result<(), Error> {
    let lines = lines(trace, filter, what)?;
    if lines.is_empty() {
        return Err(Error::Nothing);
    }
    draw_stacks(&trace.head().command.join(" "), "ns", &lines, to)
        .map_err(|e| if e.kind() == io::ErrorKind::InvalidData { Error::Nothing } else { e.into() })
}

/// Draws folded stacks, whose sizes are in `unit`, as a flame graph in SVG.
///
/// # Errors
///
/// The output cannot be written, or there is no stack to draw (`InvalidData`).
pub fn draw_stacks(
    title: &str,
    unit: &str,
    lines: &[String],
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), to)
}

/// Ticks by thread and the names of a stack, the outermost first.
type Stacks = Vec<(u32, Vec<String>, u64)>;

fn lines(trace: &Trace, filter: &Filter, what: Folded) -> Result<Vec<String>, Error> {
    let stacks = match what {
        Folded::Intervals => interval_stacks(trace, filter)?,
        Folded::OffCpu => off_cpu_stacks(trace, filter)?,
    };
    // Threads of the same name are merged here.
    let mut times: HashMap<String, f64> = HashMap::new();
    for (thread, names, ticks) in stacks {
        let frames = [thread_name(trace, thread)].into_iter().chain(names);
        let frames: Vec<String> = frames.map(|name| frame(&name)).collect();
        *times.entry(frames.join(";")).or_default() += trace.clock().span(ticks as f64);
    }
    // The drawing program adds the times, so the sum must be representable whatever a foreign trace
    // contains.
    let most = u64::MAX / 2 / (times.len() as u64).max(1);
    let times = times.into_iter().map(|(stack, nanos)| (stack, (nanos.round() as u64).min(most)));
    let mut lines: Vec<String> = times
        .filter(|(_, nanos)| *nanos > 0)
        .map(|(stack, nanos)| format!("{stack} {nanos}"))
        .collect();
    lines.sort_unstable();
    Ok(lines)
}

fn off_cpu_stacks(trace: &Trace, filter: &Filter) -> Result<Stacks, Error> {
    let (mut off, mut sums) = (OffCpus::default(), OffCpuSums::default());
    for seen in trace.records() {
        let seen = seen?;
        let record = &seen.record;
        let role = trace.definition(record.what.id()).map_or(Role::Plain, |known| known.role);
        if let Some(one) = off.see(&seen, role)
            && filter.wants_place(record.thread, seen.processor, record.time)
        {
            sums.add(&one);
        }
    }
    let named = sums.list().into_iter().map(|((thread, stack, preempted), sum)| {
        let mut names = stack_names(trace, stack);
        names.extend(preempted.then(|| "[preempted]".to_owned()));
        (thread, names, sum.ticks)
    });
    Ok(named.collect())
}

fn interval_stacks(trace: &Trace, filter: &Filter) -> Result<Stacks, Error> {
    let mut spans = Spans::new(Dumps::new(trace.dumps()));
    // Ticks by thread and the events of the stack.
    let mut stacks: HashMap<(u32, Vec<u32>), u64> = HashMap::new();
    for seen in trace.records() {
        let seen = seen?;
        let Step::End(span) = spans.see(&seen) else { continue };
        let definition = trace.definition(span.open.event);
        if !filter.wants(definition, span.thread, span.processor, span.end) {
            continue;
        }
        let around = spans.open(span.thread).iter().map(|open| open.event);
        let stack = (span.thread, around.chain([span.open.event]).collect());
        let ticks = stacks.entry(stack).or_default();
        *ticks = ticks.saturating_add(span.own_ticks());
    }
    let named = stacks.into_iter().map(|((thread, events), ticks)| {
        (thread, events.iter().map(|event| name(trace, *event)).collect(), ticks)
    });
    Ok(named.collect())
}

/// Returns a name without the characters that separate frames and lines.
pub fn frame(name: &str) -> String {
    name.replace(';', ":").replace(char::is_control, " ")
}
