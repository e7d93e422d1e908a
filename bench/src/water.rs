//! Kohr's experiment: WATER with instruments and without, and what the trace says of it (Kohr 1994, §5.2, §6, tables 1, 6).
//!
//! Three variants run in turn, round after round: without any instrument; with a clock around one procedure, which is what
//! compensated times are compared with; and traced. Procedures that are called for each pair of molecules are left out of
//! the comparison: a clock around them costs as much as they do.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::stats::Sample;

/// Molecules, steps, threads.
pub(crate) const SETTINGS: [(u32, u32, u32); 3] = [(64, 40, 1), (64, 40, 2), (216, 10, 2)];
/// Procedures that run for long each time.
const PROCEDURES: [&str; 4] = ["MDMAIN", "PREDIC", "INTRAF", "INTERF"];
const ROUNDS: usize = 9;

/// What one setting came to.
#[derive(Default)]
pub(crate) struct Water {
    /// Time of the simulation without instruments, in ns.
    pub(crate) plain: Sample,
    /// Time with them.
    pub(crate) traced: Sample,
    /// Records of a run.
    pub(crate) records: Sample,
    /// Cost of an event in a loop, as the trace says, in ns.
    pub(crate) in_vitro: Sample,
    /// Cost of an event between the work: the difference of the times by the number of events.
    pub(crate) in_vivo: Sample,
    /// By procedure: with a clock only; as traced; compensated; and the error bar; in ns.
    pub(crate) procedures: BTreeMap<&'static str, [Sample; 4]>,
    /// Locks and barriers: how often, and the mean in ns.
    pub(crate) waits: BTreeMap<&'static str, [Sample; 2]>,
    /// What was lost or failed.
    pub(crate) trouble: Vec<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line {
    Event {
        name: String,
        count: u64,
        total_ns: f64,
        mean_ns: f64,
        compensated: Option<Compensated>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Compensated {
    ns: f64,
    error_ns: f64,
}

/// All settings.
pub(crate) fn measure() -> Vec<Water> {
    SETTINGS.into_iter().map(setting).collect()
}

fn setting((molecules, steps, threads): (u32, u32, u32)) -> Water {
    let mut water = Water::default();
    let Ok(dir) = tempfile::tempdir() else { return water };
    let trace = dir.path().join("water.trace");
    let own = [("--molecules", molecules), ("--steps", steps), ("--threads", threads)];
    let own: Vec<String> = own.iter().flat_map(|(k, v)| [(*k).into(), v.to_string()]).collect();
    for round in 0..=ROUNDS {
        let Err(trouble) = one_round(&mut water, &own, &trace, round > 0) else { continue };
        water.trouble.push(trouble);
        break;
    }
    water
}

/// One round; the first is only to warm up.
fn one_round(water: &mut Water, own: &[String], trace: &Path, keep: bool) -> Result<(), String> {
    let plain = time(Command::new(program("WATER")).args(own))?;
    let mut clocked = BTreeMap::new();
    for name in PROCEDURES {
        clocked
            .insert(name, time(Command::new(program("WATER")).args(own).args(["--time", name]))?);
    }
    // As in the paper: nothing is written before the program ends, so that nobody else runs meanwhile.
    let record = |what: &str| {
        let mut record = Command::new(program("REFIT"));
        record.args(["record", "--no-switches", "--mode", "flight", "--ring", "128M", "-o"]);
        record.arg(trace).arg("--").arg(program("WATER")).args(["--traced", what]).args(own);
        let took = time(&mut record)?;
        let mut report = Command::new(program("REFIT"));
        report.arg("report").arg("--json").args(["--limit", "100"]).arg(trace);
        Ok::<_, String>((took, output(&mut report)?))
    };
    let (traced, procedures) = record("procedures")?;
    let (_, waits) = record("waits")?;
    if !keep {
        return Ok(());
    }
    let mut events = 0;
    for line in procedures.lines() {
        if let Some(ticks) = in_vitro(line) {
            water.in_vitro.push(ticks);
        }
        let Ok(Line::Event { name, count, total_ns, compensated, .. }) = serde_json::from_str(line)
        else {
            continue;
        };
        events += 2 * count;
        let known = PROCEDURES.into_iter().find(|known| name.ends_with(known));
        if let (Some(procedure), Some(compensated)) = (known, compensated) {
            let samples = water.procedures.entry(procedure).or_default();
            let values = [clocked[procedure], total_ns, compensated.ns, compensated.error_ns];
            samples.iter_mut().zip(values).for_each(|(sample, value)| sample.push(value));
        }
    }
    for line in waits.lines() {
        let Ok(Line::Event { name, count, mean_ns, .. }) = serde_json::from_str(line) else {
            continue;
        };
        if let Some(wait) = ["::lock", "::barrier"].into_iter().find(|wait| name.ends_with(wait)) {
            let [counts, means] = water.waits.entry(wait).or_default();
            counts.push(count as f64);
            means.push(mean_ns);
        }
    }
    water.plain.push(plain);
    water.traced.push(traced);
    water.records.push(events as f64);
    water.in_vivo.push((traced - plain) / events.max(1) as f64);
    Ok(())
}

/// What the header of a report says an event costs in a loop, in ns.
fn in_vitro(line: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?.get("cost_ns")?.as_f64()
}

fn program(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| variable.to_lowercase())
}

/// The number on the last line of what a run of WATER prints.
fn time(command: &mut Command) -> Result<f64, String> {
    let output = output(command)?;
    let number = output.lines().filter_map(|line| line.trim().parse().ok()).next_back();
    number.ok_or_else(|| format!("no time in {output:?}"))
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
