//! Functions that `refit report` and `refit export` share: opening a trace, selecting a part of it,
//! describing it.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use refit_instruments::analysis::{Compensation, Filter};
use refit_instruments::block::{ClockSource, Dump};
use refit_instruments::read::{Ending, Losses, Trace};
use refit_sys::printable;
use serde::Serialize;

use crate::failure::Failure;
use crate::format;

/// Arguments that select a part of a trace.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Select only this class, or this event
    #[arg(long, value_name = "NAME")]
    class: Vec<String>,

    /// Select only this thread
    #[arg(long, value_name = "TID")]
    thread: Vec<u32>,

    /// Select only this processor
    #[arg(long, value_name = "N")]
    processor: Vec<u32>,

    /// Select only what ends in this period, counted from the first record, e.g. 1s..1500ms
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range)]
    time: Option<Range<Duration>>,
}

impl Selection {
    /// Returns the selection in ticks of the trace.
    pub(crate) fn filter(&self, trace: &Trace) -> Filter {
        let (first, _) = trace.span().unwrap_or_default();
        let rate = trace.clock().rate();
        let ticks = |time: Duration| first.saturating_add((time.as_nanos() as f64 * rate) as u64);
        Filter {
            classes: self.class.clone(),
            threads: self.thread.clone(),
            processors: self.processor.clone(),
            time: self.time.as_ref().map(|time| ticks(time.start)..ticks(time.end)),
        }
    }
}

/// Parses `1s..1500ms`; one of the two may be missing.
fn parse_range(text: &str) -> Result<Range<Duration>, String> {
    let wrong = || format!("`{text}` is not FROM..TO, e.g. 1s..1500ms or 2s..");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let parse = |text: &str, missing| match text {
        "" => Ok(missing),
        text => format::parse_duration(text),
    };
    let (from, to) = (parse(from, Duration::ZERO)?, parse(to, Duration::MAX)?);
    if from < to { Ok(from..to) } else { Err(wrong()) }
}

/// Opens a trace for a command.
pub(crate) fn open(operation: &str, files: &[PathBuf]) -> Result<Trace, Failure> {
    Trace::open(files).map_err(|e| refusal(operation, &e))
}

/// Returns the refusal for an error of a trace, which contains all three parts: asked, obstacle,
/// remedy.
pub(crate) fn refusal(operation: &str, error: &impl std::fmt::Display) -> Failure {
    let text = error.to_string();
    let (rest, remedy) =
        text.rsplit_once("; ").unwrap_or((&text, "name a trace that `refit record` wrote"));
    let (operation, obstacle) = rest.split_once(": ").unwrap_or((operation, rest));
    Failure::new(operation, obstacle, remedy)
}

/// The description of a trace.
#[derive(Serialize)]
pub(crate) struct Header {
    files: Vec<String>,
    host: String,
    command: Vec<String>,
    clock: ClockSource,
    ticks_per_ns: f64,
    clock_readings: usize,
    clock_error_ns: Option<u64>,
    calibrated: bool,
    began_us: Option<i64>,
    length_ns: u64,
    records: u64,
    processors: usize,
    threads: usize,
    lost: Losses,
    dumps: usize,
    dumped_ns: f64,
    senseless_blocks: u64,
    ending: Ending,
    ended_in_peace: bool,
    cost_ns: Option<f64>,
    cost_error_ns: f64,
}

/// Returns the description of a trace.
pub(crate) fn header(trace: &Trace) -> Header {
    let clock = trace.clock();
    let (first, last) = trace.span().unwrap_or_default();
    let compensation = Compensation::new(trace);
    let ticks = |dump: &Dump| dump.end.saturating_sub(dump.begin) as f64;
    let began = clock.pairs().first().map(|pair| {
        let wall = i128::from(pair.real) + i128::from(clock.nanos(first)) - i128::from(pair.raw);
        i64::try_from(wall / 1000).unwrap_or(i64::MAX)
    });
    Header {
        files: trace.files().map(|file| printable::name(file.as_os_str().as_bytes())).collect(),
        host: trace.head().host.clone(),
        command: trace.head().command.clone(),
        clock: trace.head().clock,
        ticks_per_ns: clock.rate(),
        clock_readings: clock.pairs().len(),
        clock_error_ns: clock.error(),
        calibrated: clock.is_calibrated(),
        began_us: began,
        length_ns: clock.nanos(last).saturating_sub(clock.nanos(first)),
        records: trace.len(),
        processors: trace.processors().count(),
        threads: trace.recorded_threads(),
        lost: trace.losses(),
        dumps: trace.dumps().len(),
        dumped_ns: clock.span(trace.dumps().iter().map(ticks).sum()),
        senseless_blocks: trace.senseless(),
        ending: trace.ending(),
        ended_in_peace: trace.end().is_some(),
        cost_ns: compensation.is_known().then(|| clock.span(compensation.cost().time)),
        cost_error_ns: clock.span(compensation.cost().error),
    }
}

impl Header {
    /// Returns lines for people, which always include losses.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("trace       {} on {}", self.command.join(" "), self.host),
            format!("time        {} from {}", format::nanos(self.length_ns), self.began()),
            format!("clock       {}", self.clock()),
            format!(
                "records     {} of {} on {}",
                format::count(self.records),
                format::counted(self.threads as u64, "thread"),
                format::counted(self.processors as u64, "processor"),
            ),
            format!("lost        {}", self.lost()),
            format!("cost        {}", self.cost()),
        ];
        if self.dumps > 0 {
            let (dumps, time) = (format::counted(self.dumps as u64, "dump"), self.dumped_ns as u64);
            lines.push(format!("dumps       {dumps}, {} in sum", format::nanos(time)));
        }
        lines.extend(self.end().map(|end| format!("end         {end}")));
        if self.senseless_blocks > 0 {
            let blocks = format::counted(self.senseless_blocks, "block");
            lines.push(format!("skipped     {blocks} with invalid contents"));
        }
        lines
    }

    fn began(&self) -> String {
        let time = self.began_us.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
        time.map_or_else(
            || "an unknown time on".into(),
            |time| {
                let local = time.to_zoned(jiff::tz::TimeZone::system());
                local.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
            },
        )
    }

    fn clock(&self) -> String {
        let source = match self.clock {
            ClockSource::Cycles if !self.calibrated => {
                return "cycles, read only once: each nanosecond below is one cycle".into();
            }
            ClockSource::Cycles => format!("cycles, {:.3} a nanosecond", self.ticks_per_ns),
            ClockSource::MonotonicRaw => return "CLOCK_MONOTONIC_RAW".into(),
        };
        let readings = format::counted(self.clock_readings as u64, "reading");
        match self.clock_error_ns {
            Some(error) => format!("{source}; {readings}, error at most {}", format::nanos(error)),
            None => format!("{source}; {readings}, error unknown"),
        }
    }

    fn lost(&self) -> String {
        let causes: Vec<String> = self
            .lost
            .causes()
            .iter()
            .filter(|(_, lost)| *lost > 0)
            .map(|(cause, lost)| format!("{} {}", format::count(*lost), cause_in_words(cause)))
            .collect();
        if causes.is_empty() { "nothing".into() } else { causes.join(", ") }
    }

    fn cost(&self) -> String {
        match self.cost_ns {
            Some(cost) => format!("{cost:.1} ns a record, ± {:.1} ns", self.cost_error_ns),
            None => "not measured: times are not compensated".into(),
        }
    }

    fn end(&self) -> Option<String> {
        match self.ending {
            Ending::Cut { at } => Some(format!(
                "within a block, at byte {at}: the recorder was killed, or is still writing; earlier records are shown"
            )),
            Ending::Damaged { at } => Some(format!(
                "damaged at byte {at}; records before it are shown, later ones are not"
            )),
            Ending::Whole if !self.ended_in_peace => Some(
                "the recorder was killed, or is still writing: records not yet written are missing"
                    .into(),
            ),
            Ending::Whole => None,
        }
    }
}

fn cause_in_words(cause: &str) -> &str {
    match cause {
        "full" => "because the buffer was full",
        "torn" => "incomplete",
        "old" => "overwritten in flight mode",
        "unwritten" => "because the file could not be written",
        _ => "in files that are missing or damaged",
    }
}
