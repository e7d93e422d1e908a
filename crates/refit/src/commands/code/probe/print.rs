//! The results of probes, for people and for programs.

use refit_probe::action::{Do, Folding};
use refit_probe::argument::Argument;
use refit_probe::datum::Datum;
use refit_probe::reading::Reading;
use refit_probe::stacks::StackFrame;
use refit_splice::UNKNOWN_FRAME;
use serde::Serialize;

use super::metrics;
use super::reading::{Key, Read, Source};
use crate::failure::Failure;
use crate::format;
use crate::histogram::bars;
use crate::output::Output;
use crate::table::{Align, Table};

/// The number of keys of a place that are shown.
const KEYS: usize = 40;

/// Prints what was read of one program, or of `several`.
pub(super) fn print(
    openmetrics: bool,
    read: &[Read<'_>],
    several: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    if openmetrics {
        return metrics::print(read, out);
    }
    if out.json() {
        return read.iter().try_for_each(|read| out.object(&record(read)));
    }
    counts(read, several, out)?;
    times(read, &Do::Latency, "TIME", several, out)?;
    times(read, &Do::Cpu, "CPU TIME", several, out)?;
    concurrency(read, several, out)?;
    exits(read, several, out)?;
    folded(read, several, out)?;
    kept(read, several, out)?;
    histograms(read, several, out)
}

/// The same, for programs.
#[derive(Serialize)]
struct ReadingRecord<'w> {
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'w str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'w str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    /// The map, whose results are those of all its places.
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<&'w str>,
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// The key, if it has one part; without it, the results for keys that had no slot of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<PartRecord<'w>>,
    /// The same for stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<PartRecord<'w>>,
    /// The parts of a key that has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<PartRecord<'w>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nanos: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
    /// The sum, the least or the greatest of `count` values, or a number that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exits: Option<ExitsRecord>,
    /// The number of values, or of nanoseconds of calls, with this many bits, from none on.
    #[serde(skip_serializing_if = "Option::is_none")]
    bits: Option<&'w [u64]>,
    /// The number of values in each range of `lhist`, after those below and before those above.
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<&'w [u64]>,
}

/// The ways in which calls ended, for programs.
#[derive(Serialize)]
struct ExitsRecord {
    returns: u64,
    tail_calls: u64,
    no_return: u64,
    exceptions: u64,
}

/// A part of a key, for programs.
#[derive(Serialize)]
#[serde(untagged)]
enum PartRecord<'w> {
    Number(u64),
    Text(&'w str),
    Stack(Vec<FrameRecord<'w>>),
}

impl<'w> From<&'w Datum> for PartRecord<'w> {
    fn from(datum: &'w Datum) -> Self {
        match datum {
            Datum::Number(number) => Self::Number(*number),
            Datum::Text(text) => Self::Text(text),
            Datum::Stack(frames) => Self::Stack(frames.iter().map(FrameRecord::from).collect()),
            Datum::NoStack => Self::Stack(Vec::new()),
        }
    }
}

/// A frame of a stack, for programs.
#[derive(Serialize)]
struct FrameRecord<'w> {
    /// `None` where it was not known how to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'w str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'w str>,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'w str>,
    inlined: bool,
}

impl<'w> From<&'w StackFrame> for FrameRecord<'w> {
    fn from(frame: &'w StackFrame) -> Self {
        Self {
            address: Some(frame.address).filter(|address| *address != UNKNOWN_FRAME),
            module: frame.module.as_deref(),
            function: frame.function.as_deref(),
            offset: frame.offset,
            source: frame.source.as_deref(),
            inlined: frame.inlined,
        }
    }
}

fn record<'r>(read: &'r Read<'_>) -> ReadingRecord<'r> {
    let (place, map) = match read.from {
        Source::Place { process, module, name, address } => {
            (Some((process, module, name, address)), None)
        }
        Source::Map(name) => (None, Some(name)),
    };
    let by = read.watching.by.iter().map(ToString::to_string);
    let mut parts: Vec<PartRecord<'_>> = match &read.key {
        Key::Of(data) => data.iter().map(PartRecord::from).collect(),
        Key::All | Key::Others => Vec::new(),
    };
    let only = if parts.len() == 1 { parts.pop() } else { None };
    let is_stack = |part: &PartRecord<'_>| matches!(part, PartRecord::Stack(_));
    let (stack, key) =
        if only.as_ref().is_some_and(is_stack) { (only, None) } else { (None, only) };
    let mut record = ReadingRecord {
        process: place.map(|(process, ..)| process),
        module: place.map(|(_, module, ..)| module),
        name: place.map(|(_, _, name, _)| name),
        address: place.map(|(.., address)| address),
        map,
        action: read.watching.what.to_string(),
        by: by.reduce(|all, by| format!("{all}, {by}")),
        key,
        stack,
        keys: parts,
        count: None,
        inside: None,
        nanos: None,
        mean: None,
        result: None,
        exits: None,
        bits: None,
        buckets: None,
    };
    match &read.reading {
        Reading::Nothing => {}
        Reading::Count(count) => record.count = Some(*count),
        Reading::Latency { ended, inside, nanos } => {
            (record.count, record.inside, record.nanos) =
                (Some(*ended), Some(*inside), Some(*nanos));
        }
        Reading::Concurrency { mean, inside } => {
            (record.mean, record.inside) = (Some(*mean), Some(*inside));
        }
        Reading::Folded { values, result } => {
            record.count = Some(*values);
            match read.watching.what {
                Do::Fold(Folding::Mean, _) => record.mean = mean(*values, *result),
                _ => record.result = Some(*result).filter(|_| *values > 0),
            }
            if let Do::Fold(Folding::Stats, _) = read.watching.what {
                record.mean = mean(*values, *result);
            }
        }
        Reading::Exits { calls, ways } => {
            let [returns, tail_calls, no_return, exceptions] = *ways;
            record.count = Some(*calls);
            record.exits = Some(ExitsRecord { returns, tail_calls, no_return, exceptions });
        }
        Reading::Kept(number) => record.result = Some(*number),
        Reading::Histogram(sizes) => record.bits = Some(&sizes[..]),
        Reading::Linear(buckets) => record.buckets = Some(buckets),
        Reading::Durations { sizes, nanos } => {
            let calls = sizes.iter().sum();
            (record.bits, record.count, record.nanos) =
                (Some(&sizes[..]), Some(calls), Some(*nanos));
        }
    }
    record
}

/// Returns the mean of some values, if there are any.
fn mean(values: u64, sum: i64) -> Option<f64> {
    (values > 0).then(|| sum as f64 / values as f64)
}

impl Read<'_> {
    /// Names its place, or its map; with `several` also the process.
    pub(super) fn place(&self, several: bool) -> String {
        match self.from {
            Source::Place { process, module, name, .. } if several => {
                format!("{process} {module}:{name}")
            }
            Source::Place { module, name, .. } => format!("{module}:{name}"),
            Source::Map(name) => format!("@{name}"),
        }
    }

    /// Returns a line for each frame of its stack, if it is a result for stacks.
    fn frames(&self) -> Vec<String> {
        let lines: Vec<String> = match &self.key {
            Key::Of(data) => {
                data.iter().filter_map(Datum::frames).flatten().map(ToString::to_string).collect()
            }
            Key::Others if self.watching.by.iter().all(Argument::is_stack) => {
                vec![OTHERS.to_owned()]
            }
            _ => Vec::new(),
        };
        lines.iter().map(|line| format!("    {line}")).collect()
    }

    /// Returns the parts of its key that are no stacks.
    fn key(&self) -> Vec<String> {
        let parts = self.watching.by.iter().filter(|by| !by.is_stack());
        match &self.key {
            Key::All => Vec::new(),
            Key::Of(data) => data.iter().filter_map(part).collect(),
            Key::Others => parts.map(|_| OTHERS.to_owned()).collect(),
        }
    }
}

/// The text in place of keys that had no slot.
const OTHERS: &str = "others";

/// Returns a part of a key as it is shown, unless it is a stack.
fn part(datum: &Datum) -> Option<String> {
    match datum {
        // Addresses and similar values are shown in base 16.
        Datum::Number(number) if *number >= 1 << 32 => Some(format!("{number:#x}")),
        Datum::Number(number) => Some(number.to_string()),
        Datum::Text(text) => Some(text.clone()),
        Datum::Stack(_) | Datum::NoStack => None,
    }
}

/// A reading in a table: what it is sorted by, and its columns.
type Row<'r> = (u64, Vec<String>, &'r Read<'r>);

/// Prints a table for each value by which readings are separated.
fn table(
    columns: &[&str],
    mut rows: Vec<Row<'_>>,
    several: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    rows.sort_by_key(|(weight, ..)| std::cmp::Reverse(*weight));
    while let Some(by) = rows.first().map(|(_, _, read)| &read.watching.by) {
        let (same, others) = rows.into_iter().partition(|(_, _, read)| read.watching.by == *by);
        table_by(columns, by, same, several, out)?;
        rows = others;
    }
    Ok(())
}

/// Prints a table with a row for each reading: its columns, then those of the parts of its key,
/// then the place's.
fn table_by(
    columns: &[&str],
    by: &[Argument],
    rows: Vec<Row<'_>>,
    several: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    // A stack has lines of its own.
    let parts = by.iter().filter(|by| !by.is_stack());
    let align = |by: &Argument| if by.is_number() { Align::Right } else { Align::Left };
    let titles: Vec<_> = parts.map(|by| (by.to_string().to_uppercase(), align(by))).collect();
    let mut all: Vec<_> = columns.iter().map(|title| (*title, Align::Right)).collect();
    all.extend(titles.iter().map(|(title, align)| (title.as_str(), *align)));
    all.push(("PLACE", Align::Left));
    let mut table = Table::new(&all);
    let shown = if by.is_empty() { rows.len() } else { KEYS };
    for (_, mut cells, read) in rows.iter().take(shown).map(|(w, c, r)| (w, c.clone(), *r)) {
        cells.extend(read.key());
        cells.push(read.place(several));
        table.row(cells);
    }
    let lines = table.lines();
    let (title, lines) = lines.split_at(lines.len().min(1));
    title.iter().try_for_each(|line| out.line(line))?;
    for (line, (.., read)) in lines.iter().zip(&rows) {
        out.line(line)?;
        read.frames().iter().try_for_each(|line| out.line(line))?;
    }
    match rows.len().saturating_sub(shown) as u64 {
        0 => Ok(()),
        more => out.line(&format!("and {}; --json prints all", format::counted(more, "line"))),
    }
}

fn counts(read: &[Read<'_>], several: bool, out: &mut Output) -> Result<(), Failure> {
    let (mut rows, mut never) = (Vec::new(), 0);
    for read in read {
        match read.reading {
            Reading::Count(0) if matches!(read.from, Source::Place { .. }) => never += 1,
            Reading::Count(count) => rows.push((count, vec![format::count(count)], read)),
            _ => {}
        }
    }
    table(&["COUNT"], rows, several, out)?;
    match never {
        0 => Ok(()),
        places => out.line(&format!("{} never reached", format::counted(places, "place"))),
    }
}

fn times(
    read: &[Read<'_>],
    what: &Do,
    title: &str,
    several: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for read in read.iter().filter(|read| read.watching.what == *what) {
        let Reading::Latency { ended, inside, nanos } = read.reading else { continue };
        let mean = nanos.checked_div(ended + inside).map_or("-".to_owned(), format::nanos);
        let (calls, inside) = (format::count(ended), format::count(inside));
        rows.push((nanos, vec![format::nanos(nanos), calls, mean, inside], read));
    }
    table(&[title, "CALLS", "MEAN", "INSIDE"], rows, several, out)
}

fn concurrency(read: &[Read<'_>], several: bool, out: &mut Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for read in read {
        let Reading::Concurrency { mean, inside } = read.reading else { continue };
        rows.push(((mean * 1e6) as u64, vec![format!("{mean:.3}"), format::count(inside)], read));
    }
    table(&["THREADS", "INSIDE"], rows, several, out)
}

fn exits(read: &[Read<'_>], several: bool, out: &mut Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for read in read {
        let Reading::Exits { calls, ways } = read.reading else { continue };
        // A call that was in progress when the probe was installed has an exit only.
        let others = calls.saturating_sub(ways.iter().sum());
        let all = std::iter::once(calls).chain(ways).chain([others]);
        rows.push((calls, all.map(format::count).collect(), read));
    }
    table(
        &["CALLS", "RETURNS", "TAIL CALLS", "NO RETURN", "EXCEPTIONS", "OTHERS"],
        rows,
        several,
        out,
    )
}

/// Prints a table for each sum, mean, least and greatest value that was asked for.
fn folded(read: &[Read<'_>], several: bool, out: &mut Output) -> Result<(), Failure> {
    let mut asked: Vec<&Do> = Vec::new();
    for what in read.iter().map(|read| &read.watching.what) {
        if matches!(what, Do::Fold(..)) && !asked.contains(&what) {
            asked.push(what);
        }
    }
    for what in asked {
        let mut rows = Vec::new();
        for read in read.iter().filter(|read| read.watching.what == *what) {
            let Reading::Folded { values: values @ 1.., result } = read.reading else { continue };
            let average = || format!("{:.1}", mean(values, result).unwrap_or(0.0));
            let shown = match what {
                Do::Fold(Folding::Mean, _) => average(),
                Do::Fold(Folding::Stats, _) => format!("{result} ({} each)", average()),
                _ => result.to_string(),
            };
            rows.push((weight(result), vec![shown, format::count(values)], read));
        }
        table(&[&what.to_string(), "VALUES"], rows, several, out)?;
    }
    Ok(())
}

/// Prints the numbers that maps keep.
fn kept(read: &[Read<'_>], several: bool, out: &mut Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for read in read {
        let Reading::Kept(number) = read.reading else { continue };
        rows.push((weight(number), vec![number.to_string()], read));
    }
    table(&["VALUE"], rows, several, out)
}

/// Returns what sorts signed numbers.
fn weight(number: i64) -> u64 {
    (number ^ i64::MIN).cast_unsigned()
}

fn histograms(read: &[Read<'_>], several: bool, out: &mut Output) -> Result<(), Failure> {
    for read in read {
        let (sizes, timed) = match &read.reading {
            Reading::Histogram(sizes) => (&sizes[..], false),
            Reading::Linear(buckets) => (&buckets[..], false),
            Reading::Durations { sizes, .. } => (&sizes[..], true),
            _ => continue,
        };
        let parts = read.watching.by.iter().filter(|by| !by.is_stack());
        let key: String =
            parts.zip(read.key()).map(|(by, part)| format!(", {by} {part}")).collect();
        out.line(&format!("{} at {}{key}", read.watching.what, read.place(several)))?;
        read.frames().iter().try_for_each(|line| out.line(line))?;
        let from = |bits: usize| match (bits, &read.watching.what) {
            (0, Do::Linear { buckets, .. }) => format!("< {}", buckets.least),
            (bucket, Do::Linear { buckets, .. }) => buckets.from(bucket).to_string(),
            (0, _) => "0".to_owned(),
            (bits, _) if timed => format::nanos(1 << (bits - 1)),
            (bits, _) => format::count(1 << (bits - 1)),
        };
        bars(sizes, from).iter().try_for_each(|line| out.line(line))?;
    }
    Ok(())
}
