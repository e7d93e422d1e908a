//! Where a profile comes from: the counters of this time, or the store.

use std::time::Duration;

use refit_analysis::FunctionId;
use refit_probe::files::Files;
use refit_splice::process::Program;

use crate::calls::{self, Targets};
use crate::error::Error;
use crate::options::Options;
use crate::outcome::Step;
use crate::profile::{self, Called, ChangedCode, Profile};
use crate::stored::{self, NoProfile, Restored, StoredProfile};

/// Calls of a function for each second of processor time up to which progress is measured by them:
/// more cost too much.
const OFTEN: f64 = 2_000_000.0;
/// Relative deviation of a function's calls from which on they are no measure.
const UNEVEN: f64 = 1.0;
/// A function is as good a measure as the most even one if its deviation is at most so many times
/// as large.
const AS_GOOD: f64 = 1.5;

/// A profile of a file.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) profile: Profile,
    /// Where calls through pointers lead.
    pub(crate) targets: Targets,
    /// The function by whose calls progress is measured best, if one was called evenly enough.
    pub(crate) progress: Option<FunctionId>,
}

/// Counts a file for some time, where it has not been changed, and stores what was counted.
pub(crate) fn counted(
    program: &Program,
    (files, file, changed): (&mut Files, usize, &ChangedCode),
    options: &Options,
    tell: &mut dyn FnMut(&Step),
) -> Result<Source, Error> {
    let called = profile::called(program, files, file, changed, options.profile / 2)?;
    let hot = profile::hot(files, file, &called, changed);
    tell(&Step::Called(called.calls.len(), hot.len()));
    if hot.is_empty() {
        return Err(Error::Idle { file: files.mapped(file).name() });
    }
    let profile = profile::blocks(program, files, file, &hot, options.profile / 2)?;
    tell(&Step::Profiled(profile.functions.len(), profile.lasted));
    let targets = calls::targets(program, files, file, &profile, options.profile / 4)?;
    let progress = steady(&called, options.slot, |id| profile.passes(id));
    if let Some(directory) = options.profiles.as_deref().filter(|_| !profile.functions.is_empty()) {
        let (module, _) = files.open(file)?;
        let new = StoredProfile::new(module, &called, (&profile, &targets), progress);
        // The program can be optimised all the same.
        tell(&match stored::add(directory, module, new) {
            Ok(sum) => Step::Stored(sum.profiles()),
            Err(why) => Step::NotStored(format!("{}: {why}", directory.display())),
        });
    }
    Ok(Source { profile, targets, progress })
}

/// Takes the stored profile of a file.
pub(crate) fn restored(
    files: &mut Files,
    file: usize,
    options: &Options,
    tell: &mut dyn FnMut(&Step),
) -> Result<Source, Error> {
    let directory = options.profiles.as_deref().ok_or(NoProfile::NoDirectory)?;
    let name = files.mapped(file).name();
    let (module, _) = files.open(file)?;
    let found = stored::load(directory, module).map_err(|why| match why {
        // The path of the module is one by which refit reads it.
        NoProfile::Never { build, .. } => NoProfile::Never { file: name, build },
        other => other,
    })?;
    tell(&Step::Restored {
        profiles: found.profiles,
        called: found.called,
        counted: found.profile.functions.len(),
        left_out: found.left_out,
    });
    let Restored { profile, targets, progress, .. } = found;
    Ok(Source { profile, targets, progress })
}

/// Returns a function whose calls are an even measure of what the program does. A slot in which
/// there are few has a part of a call more or less. Of functions that are as good, it is the one
/// that costs least: it stays as it is.
pub fn steady(
    called: &Called,
    slot: Duration,
    cost: impl Fn(FunctionId) -> u64,
) -> Option<FunctionId> {
    let unevenness = |(&id, rates): (&FunctionId, &Vec<f64>)| {
        let n = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / n;
        let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        let deviation = (squares / n).sqrt() / mean;
        let part = 0.5 / (mean * slot.as_nanos() as f64);
        let often = mean * 1e9 < OFTEN;
        (often && deviation.is_finite()).then_some((id, deviation.hypot(part)))
    };
    let all = called.rates.iter().filter_map(unevenness).filter(|(_, one)| *one < UNEVEN);
    let all: Vec<(FunctionId, f64)> = all.collect();
    let least = all.iter().map(|&(_, one)| one).min_by(f64::total_cmp)?;
    let good = all.into_iter().filter(|&(_, one)| one <= least * AS_GOOD);
    good.min_by(|one, other| (cost(one.0).cmp(&cost(other.0))).then(one.1.total_cmp(&other.1)))
        .map(|(id, _)| id)
}
