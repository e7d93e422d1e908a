//! The results of probes, for people and for programs.

use refit_probe::operand::Operand;
use refit_probe::reading::Reading;
use refit_probe::stacks::StackFrame;
use refit_probe::statement::{Do, Folding};
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
    folded(read, several, out)?;
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
    /// The value; without it, the results for values that had no slot of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<u64>,
    /// The same for stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<FrameRecord<'w>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nanos: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
    /// The sum, the least or the greatest of `count` values.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<i64>,
    /// The number of values, or of nanoseconds of calls, with this many bits, from none on.
    #[serde(skip_serializing_if = "Option::is_none")]
    bits: Option<&'w [u64]>,
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
    let mut record = ReadingRecord {
        process: place.map(|(process, ..)| process),
        module: place.map(|(_, module, ..)| module),
        name: place.map(|(_, _, name, _)| name),
        address: place.map(|(.., address)| address),
        map,
        action: read.watching.what.to_string(),
        by: read.watching.by.map(|by| by.to_string()),
        key: if let Key::Of(key) = read.key { Some(key) } else { None },
        stack: if let Key::Stack(frames) = &read.key {
            Some(frames.iter().map(FrameRecord::from).collect())
        } else {
            None
        },
        count: None,
        inside: None,
        nanos: None,
        mean: None,
        result: None,
        bits: None,
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
        }
        Reading::Histogram(sizes) => record.bits = Some(&sizes[..]),
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
            Key::Stack(frames) => frames.iter().map(ToString::to_string).collect(),
            Key::Others if self.watching.by.is_some_and(Operand::is_stack) => vec![self.key()],
            _ => Vec::new(),
        };
        lines.iter().map(|line| format!("    {line}")).collect()
    }

    fn key(&self) -> String {
        match self.key {
            Key::All | Key::Stack(_) => String::new(),
            // Addresses and similar values are shown in base 16.
            Key::Of(key) if key >= 1 << 32 => format!("{key:#x}"),
            Key::Of(key) => key.to_string(),
            Key::Others => "others".to_owned(),
        }
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
    while let Some(by) = rows.first().map(|(_, _, read)| read.watching.by) {
        let (same, others) = rows.into_iter().partition(|(_, _, read)| read.watching.by == by);
        table_by(columns, by, same, several, out)?;
        rows = others;
    }
    Ok(())
}

/// Prints a table with a row for each reading: its columns, then the key's, if there are keys, then
/// the place's.
fn table_by(
    columns: &[&str],
    by: Option<Operand>,
    rows: Vec<Row<'_>>,
    several: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    // A stack has lines of its own.
    let key = by.filter(|by| !by.is_stack());
    let title = key.map(|by| by.to_string().to_uppercase());
    let mut all: Vec<_> = columns.iter().map(|title| (*title, Align::Right)).collect();
    all.extend(title.as_deref().map(|title| (title, Align::Right)));
    all.push(("PLACE", Align::Left));
    let mut table = Table::new(&all);
    let shown = if by.is_some() { KEYS } else { rows.len() };
    for (_, mut cells, read) in rows.iter().take(shown).map(|(w, c, r)| (w, c.clone(), *r)) {
        cells.extend(key.map(|_| read.key()));
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
            let shown = match what {
                Do::Fold(Folding::Mean, _) => format!("{:.1}", mean(values, result).unwrap_or(0.0)),
                _ => result.to_string(),
            };
            // The order of signed numbers.
            let weight = (result ^ i64::MIN).cast_unsigned();
            rows.push((weight, vec![shown, format::count(values)], read));
        }
        table(&[&what.to_string(), "VALUES"], rows, several, out)?;
    }
    Ok(())
}

fn histograms(read: &[Read<'_>], several: bool, out: &mut Output) -> Result<(), Failure> {
    for read in read {
        let (sizes, timed) = match &read.reading {
            Reading::Histogram(sizes) => (sizes, false),
            Reading::Durations { sizes, .. } => (sizes, true),
            _ => continue,
        };
        let key = read.watching.by.filter(|by| !by.is_stack());
        let key = key.map_or(String::new(), |by| format!(", {by} {}", read.key()));
        out.line(&format!("{} at {}{key}", read.watching.what, read.place(several)))?;
        read.frames().iter().try_for_each(|line| out.line(line))?;
        let from = |bits: usize| match bits {
            0 => "0".to_owned(),
            bits if timed => format::nanos(1 << (bits - 1)),
            bits => format::count(1 << (bits - 1)),
        };
        bars(&sizes[..], from).iter().try_for_each(|line| out.line(line))?;
    }
    Ok(())
}
