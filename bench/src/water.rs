//! Kohr's experiment: WATER with instruments and without, and the results from the trace (Kohr
//! 1994, §5.2, §6, tables 1, 6).
//!
//! Three variants run by turns in one process, simulation after simulation, so that a disturbance
//! slows all of them: without any instrument; with a clock around procedures and barriers, with
//! which compensated times are compared; and traced. Of all intervals of a procedure the median
//! counts, since others use the machine as well. Procedures that are called for each pair of
//! molecules are left out of the comparison: a clock around them costs as much as they do. MDMAIN
//! is compared without its waiting for other threads: they determine its length, and it is no cost
//! of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use refit_instruments::analysis::{Compensation, Dumps, Spans, Step};
use refit_instruments::block::{Cost, Place};
use refit_instruments::read::Trace;
use serde::Deserialize;

use crate::stats::Sample;

/// Molecules, steps, threads.
pub(crate) const SETTINGS: [(u32, u32, u32); 3] = [(64, 40, 1), (64, 40, 2), (216, 10, 2)];
/// Procedures with long calls.
const PROCEDURES: [&str; 4] = ["MDMAIN", "PREDIC", "INTRAF", "INTERF"];
/// The number of rounds.
const ROUNDS: usize = 9;
/// The number of events that a ring of 128 MiB holds, with some to spare.
const HELD: u32 = 3_500_000;
/// The approximate number of events per step and pair of molecules within reach of each other.
const EVENTS_PER_PAIR: u32 = 4;

/// The results of one setting.
#[derive(Default)]
pub(crate) struct Water {
    /// The time of the simulation without instruments, in ns.
    pub(crate) plain: Sample,
    /// The time with instruments, in ns.
    pub(crate) traced: Sample,
    /// The number of records of a run.
    pub(crate) records: Sample,
    /// The cost of an event in a loop, from the trace, in ns.
    pub(crate) in_vitro: Sample,
    /// The cost of an event between the work: the increase of the time of INTERF over that with a
    /// clock only, divided by the number of events.
    pub(crate) in_vivo: Sample,
    /// By procedure: with a clock only; as traced; compensated; and the error bar; in ns; and
    /// compensated by clock.
    pub(crate) procedures: BTreeMap<&'static str, [Sample; 5]>,
    /// Locks and barriers: number of waits, and their mean in ns.
    pub(crate) waits: BTreeMap<&'static str, [Sample; 2]>,
    /// Descriptions of losses and failures.
    pub(crate) trouble: Vec<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line {
    Event {
        name: String,
        count: u64,
        mean_ns: f64,
    },
    #[serde(other)]
    Other,
}

/// Measures all settings.
pub(crate) fn measure() -> Vec<Water> {
    SETTINGS.into_iter().map(setting).collect()
}

fn setting((molecules, steps, threads): (u32, u32, u32)) -> Water {
    let mut water = Water::default();
    let pairs = molecules * molecules / 2;
    let turns = (HELD / (pairs * EVENTS_PER_PAIR * steps)).clamp(2, 20);
    let Ok(dir) = tempfile::tempdir() else { return water };
    let trace = dir.path().join("water.trace");
    let own = [("--molecules", molecules), ("--steps", steps), ("--threads", threads)];
    let own: Vec<String> = own.iter().flat_map(|(k, v)| [(*k).into(), v.to_string()]).collect();
    for round in 0..=ROUNDS {
        let Err(trouble) = one_round(&mut water, &own, turns, &trace, round > 0) else { continue };
        water.trouble.push(trouble);
        break;
    }
    water
}

/// Runs one round; the first only warms up.
fn one_round(
    water: &mut Water,
    own: &[String],
    turns: u32,
    trace: &Path,
    keep: bool,
) -> Result<(), String> {
    // As in the paper: nothing is written before the program ends, so that no other program runs
    // meanwhile.
    let record = |what: &str, turns: &[String]| {
        let mut record = Command::new(program("REFIT"));
        record.args(["record", "--no-switches", "--mode", "flight", "--ring", "128M", "-o"]);
        record.arg(trace).arg("--").arg(program("WATER")).args(["--traced", what]).args(own);
        output(record.args(turns))
    };
    let said = record("procedures", &["--by-turns".into(), turns.to_string()])?;
    let said = |name: &str| {
        let line =
            said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        line.ok_or_else(|| format!("water does not say {name}: {said}"))
    };
    let traced = Traced::of(trace).map_err(|e| format!("{}: {e}", trace.display()))?;
    record("waits", &[])?;
    let mut report = Command::new(program("REFIT"));
    let waits = output(report.args(["report", "--json", "--limit", "100"]).arg(trace))?;
    if !keep {
        return Ok(());
    }
    for name in PROCEDURES {
        let Some([raw, compensated, error, inside]) = traced.medians(name) else { continue };
        let samples = water.procedures.entry(name).or_default();
        let clock = said(&format!("water::{name} "))?;
        let values = [clock, raw, compensated, error, compensated / clock];
        // Nearly all events are in INTERF.
        if name == "INTERF" {
            water.in_vivo.push((raw - clock) / inside);
        }
        samples.iter_mut().zip(values).for_each(|(sample, value)| sample.push(value));
    }
    for line in waits.lines() {
        let Ok(Line::Event { name, count, mean_ns }) = serde_json::from_str(line) else {
            continue;
        };
        if let Some(wait) = ["::lock", "::barrier"].into_iter().find(|wait| name.ends_with(wait)) {
            let [counts, means] = water.waits.entry(wait).or_default();
            counts.push(count as f64);
            means.push(mean_ns);
        }
    }
    let (plain, with) = (said("plain ")?, said("traced ")?);
    let events = traced.records as f64 / f64::from(turns);
    water.plain.push(plain);
    water.traced.push(with);
    water.records.push(events);
    water.in_vitro.push(traced.cost);
    Ok(())
}

/// The results from a trace, in ns.
struct Traced {
    records: u64,
    /// The cost of a record in a loop.
    cost: f64,
    /// By procedure: raw, compensated and error of each interval, and records in it.
    intervals: BTreeMap<&'static str, Vec<[f64; 4]>>,
}

impl Traced {
    fn of(trace: &Path) -> Result<Traced, refit_instruments::read::Error> {
        let trace = Trace::open(&[trace])?;
        let (compensation, clock) = (Compensation::new(&trace), trace.clock());
        let mut spans = Spans::new(Dumps::new(trace.dumps()));
        let mut intervals = BTreeMap::<_, Vec<_>>::new();
        // Of each thread: raw, compensated and error of the waiting since its MDMAIN began.
        let mut waited = BTreeMap::<u32, [f64; 3]>::new();
        for seen in trace.records() {
            let Step::End(span) = spans.see(&seen?) else { continue };
            let name = trace.definition(span.open.event).map_or("", |d| d.name.as_str());
            let corrected = compensation.correct(span.ticks(), span.records(), span.dumped);
            let time = [span.ticks() as f64, corrected.time, corrected.error];
            let time = time.map(|ticks| clock.span(ticks));
            let of_thread = waited.entry(span.thread).or_default();
            if name.ends_with("::barrier") {
                *of_thread = std::array::from_fn(|i| of_thread[i] + time[i]);
            }
            let Some(name) = PROCEDURES.into_iter().find(|known| name.ends_with(known)) else {
                continue;
            };
            let without = if name == "MDMAIN" { std::mem::take(of_thread) } else { [0.0; 3] };
            let [raw, own, error] = time;
            let time = [raw - without[0], own - without[1], error, span.records() as f64];
            intervals.entry(name).or_default().push(time);
        }
        let in_vitro = |cost: &&Cost| cost.instrument == "event" && cost.place == Place::InVitro;
        let cost = trace.costs().find(in_vitro).map_or(f64::NAN, |cost| clock.span(cost.ticks));
        Ok(Traced { records: trace.len(), cost, intervals })
    }

    fn medians(&self, name: &str) -> Option<[f64; 4]> {
        let all = self.intervals.get(name)?;
        Some(std::array::from_fn(|i| all.iter().map(|one| one[i]).collect::<Sample>().median()))
    }
}

fn program(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| variable.to_lowercase())
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
