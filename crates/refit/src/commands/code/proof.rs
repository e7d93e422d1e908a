//! Lines about a change that is measured while the program works: how progress is measured, what
//! was gained, and the end of it.

use refit_optimize::Verdict;
use refit_optimize::interval::Interval;
use refit_optimize::prove::Proof;
use refit_probe::spec::{NotUnderstood, Spec};
use refit_splice::process::Stops;
use serde::Serialize;

use crate::failure::Failure;
use crate::format;

/// The remedy where no function is a measure of progress.
pub(super) const NAME_PROGRESS: &str =
    "put load on it, or name a function that it calls for each piece of work with --progress";
/// The remedy where the program made no progress that could be measured.
pub(super) const NAME_OFTEN: &str =
    "put load on it, and name a function that it calls often with --progress";
/// The remedy for a program with shadow stacks.
pub(super) const WITHOUT_SHADOW_STACKS: &str = "start it without shadow stacks (GLIBC_TUNABLES)";

/// Returns the place at which calls are counted as progress, as the user has named it.
pub(super) fn progress(place: Option<&str>) -> Result<Option<Spec>, Failure> {
    let Some(place) = place else { return Ok(None) };
    let spec = format!("{place} {{ count }}").parse::<Spec>();
    spec.map(Some).map_err(|why: NotUnderstood| {
        let what = format!("measure progress by {place}");
        Failure::new(what, why.to_string(), "name a place, such as uprobe:FILE:FUNCTION")
    })
}

pub(super) fn progress_by(function: &str) -> String {
    format!("progress is measured by calls of {function}")
}

pub(super) fn proved(proof: &Proof) -> String {
    let stop = format::nanos(proof.stop.as_nanos() as u64);
    format!("{} in {} rounds; stops of at most {stop}", percent(&proof.gain), proof.rounds)
}

fn percent(gain: &Interval) -> String {
    let [estimate, low, high] = numbers(gain).map(|part| part * 100.0);
    format!("{estimate:+.1} % ({low:+.1} to {high:+.1})")
}

/// Returns a gain and its interval as ratios, for programs.
pub(super) fn numbers(gain: &Interval) -> [f64; 3] {
    [gain.estimate, gain.low, gain.high]
}

/// Describes the stops of the program.
pub(super) fn stopped(stops: &Stops) -> String {
    let [median, longest] = [stops.median, stops.longest].map(|one| one.as_nanos() as u64);
    format!(
        "{}, median {}, longest {}",
        format::counted(stops.count as u64, "stop"),
        format::nanos(median),
        format::nanos(longest)
    )
}

/// The stops of the program, for programs.
#[derive(Serialize)]
pub(super) struct StopsRecord {
    stops: usize,
    median_stop_ns: u64,
    longest_stop_ns: u64,
}

impl StopsRecord {
    pub(super) fn new(stops: &Stops) -> Self {
        Self {
            stops: stops.count,
            median_stop_ns: stops.median.as_nanos() as u64,
            longest_stop_ns: stops.longest.as_nanos() as u64,
        }
    }
}

pub(super) fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Kept(_) => format!("kept: {}", effect(verdict)),
        Verdict::Unproved => "kept, unproved".to_owned(),
        Verdict::FromProfile => "kept, from the profile".to_owned(),
        Verdict::Undone(_) => format!("undone, since {}", effect(verdict)),
        Verdict::Rehearsed => "nothing changed".to_owned(),
    }
}

/// Describes what was measured, or why nothing was.
pub(super) fn effect(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Kept(gain) => format!("{} progress for the same processor time", percent(gain)),
        Verdict::Undone(gain) => format!("it is not sure to pay: {}", percent(gain)),
        Verdict::Unproved => "unproved".to_owned(),
        Verdict::FromProfile => "from the profile".to_owned(),
        Verdict::Rehearsed => "dry run".to_owned(),
    }
}

/// Returns the word for programs.
pub(super) fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Kept(_) => "kept",
        Verdict::Unproved => "unproved",
        Verdict::FromProfile => "from-profile",
        Verdict::Undone(_) => "undone",
        Verdict::Rehearsed => "rehearsed",
    }
}
