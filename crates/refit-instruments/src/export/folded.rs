//! Folded stacks, with a line per stack and its time in nanoseconds, and the flame graph that
//! inferno draws from them.
//!
//! A stack consists of the thread's name and the open intervals, the outermost first. Its time
//! excludes intervals further inside. Intervals without an end have no time and are omitted.

use std::collections::HashMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use super::error::Error;
use super::names::{name, thread_name};
use crate::analysis::{Dumps, Filter, Spans, Step};
use crate::read::Trace;

/// Writes folded stacks, sorted.
///
/// # Errors
///
/// The trace can no longer be read, or the output cannot be written.
pub fn folded(trace: &Trace, filter: &Filter, to: &mut dyn Write) -> Result<(), Error> {
    for line in lines(trace, filter)? {
        writeln!(to, "{line}")?;
    }
    Ok(())
}

/// Draws a flame graph as SVG.
///
/// # Errors
///
/// The errors of [`folded`], or [`Error::Nothing`] if there is no stack to draw.
pub fn flame_graph(trace: &Trace, filter: &Filter, to: &mut dyn Write) -> Result<(), Error> {
    let lines = lines(trace, filter)?;
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

fn lines(trace: &Trace, filter: &Filter) -> Result<Vec<String>, Error> {
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
    // Threads of the same name are merged here.
    let mut times: HashMap<String, f64> = HashMap::new();
    for ((thread, events), ticks) in &stacks {
        let frames = events.iter().map(|event| name(trace, *event));
        let frames: Vec<String> = [thread_name(trace, *thread)]
            .into_iter()
            .chain(frames)
            .map(|name| frame(&name))
            .collect();
        *times.entry(frames.join(";")).or_default() += trace.clock().span(*ticks as f64);
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

/// Returns a name without the characters that separate frames and lines.
pub fn frame(name: &str) -> String {
    name.replace(';', ":").replace(char::is_control, " ")
}
