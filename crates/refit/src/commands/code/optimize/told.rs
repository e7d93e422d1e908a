//! The lines that `refit optimize` prints.

use refit_optimize::layout::Figures;
use refit_optimize::{Outcome, Step};
use serde::Serialize;

use crate::commands::code::proof::{StopsRecord, numbers, progress_by, proved, word};
use crate::format;

pub(super) fn describe(step: &Step) -> String {
    match step {
        Step::LeftOut(functions) => format!(
            "{} left out: probes, knobs or other tools have changed their code",
            format::counted(*functions as u64, "function")
        ),
        Step::Called(called, hot) => format!(
            "{} called, {} of them hot",
            format::counted(*called as u64, "function"),
            format::count(*hot as u64)
        ),
        Step::Profiled(functions, time) => format!(
            "blocks of {} counted for {}",
            format::counted(*functions as u64, "function"),
            format::nanos(time.as_nanos() as u64)
        ),
        Step::Stored(1) => "profile stored, the first of this binary".to_owned(),
        Step::Stored(profiles) => {
            let profiles = format::counted(u64::from(*profiles), "profile");
            format!("profile stored: the sum of {profiles} of this binary")
        }
        Step::NotStored(why) => format!("profile not stored: {why}"),
        Step::Restored { profiles, called, counted, left_out } => {
            let left_out = match left_out {
                0 => String::new(),
                _ => format!("; {} have other blocks now", format::count(*left_out as u64)),
            };
            format!(
                "the sum of {}: {} called, blocks of {} counted{left_out}",
                format::counted(u64::from(*profiles), "profile"),
                format::counted(*called as u64, "function"),
                format::count(*counted as u64)
            )
        }
        Step::LaidOut(functions, blocks, before, after) => format!(
            "{} of {} laid out: {}",
            format::counted(*blocks as u64, "block"),
            format::counted(*functions as u64, "function"),
            changed(before, after)
        ),
        Step::Progress(name) => progress_by(name),
        Step::Placebo(proof) => format!("copies in the old order: {}", proved(proof)),
        Step::Measured(proof) => format!("copies in the new order: {}", proved(proof)),
    }
}

fn changed(before: &Figures, after: &Figures) -> String {
    format!(
        "{:.0} → {:.0} jumps taken per 1,000 blocks, {} → {} cache lines, {} → {} pages, {}",
        before.taken,
        after.taken,
        format::count(before.lines),
        format::count(after.lines),
        format::count(before.pages),
        format::count(after.pages),
        format::size(after.bytes)
    )
}

/// The result, for programs. Gains and their intervals are ratios: 0.05 is 5 %.
#[derive(Serialize)]
pub(super) struct Record {
    verdict: &'static str,
    gain: Option<[f64; 3]>,
    placebo: Option<[f64; 3]>,
    #[serde(flatten)]
    stops: StopsRecord,
}

impl Record {
    pub(super) fn new(outcome: &Outcome) -> Self {
        Self {
            verdict: word(&outcome.verdict),
            gain: outcome.verdict.gain().as_ref().map(numbers),
            placebo: outcome.placebo.as_ref().map(numbers),
            stops: StopsRecord::new(&outcome.stops),
        }
    }
}
