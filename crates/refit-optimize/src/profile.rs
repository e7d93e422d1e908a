//! The profile of a program: how often each block of its hot functions runs.
//!
//! First all functions of a file are counted, and the program is stopped some times to see where
//! its threads are: this finds functions that run often, and those that run for long. Then the
//! blocks of these are counted. All counts are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use refit_analysis::FunctionId;
use refit_analysis::functions::Convention;
use refit_probe::cover::{self, Blocks, Watching};
use refit_probe::files::Files;
use refit_probe::reading::Reading;
use refit_probe::spec::{Place, Spec, What};
use refit_probe::watch::{self, Error};
use refit_splice::Changed;
use refit_splice::process::{Program, Refusal, STOP_TIMEOUT, Still};
use refit_sys::clock;
use tracing::debug;

/// Time between two looks at the positions of threads, and at the counts.
const LOOKS: Duration = Duration::from_millis(20);
/// Number of looks between two readings of all counts.
const READINGS: usize = 2;
/// Functions are chosen, the heaviest first, up to all but this part of all weight.
const REST: f64 = 0.002;
/// Maximum number of functions whose blocks are counted.
const MOST: usize = 6000;
/// Instructions of a function that are taken to run in one call.
const RUN: u64 = 64;

/// A function and how often its blocks ran.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// The function.
    pub id: FunctionId,
    /// The count of each block, in the order of its flow; `None` where it is unknown.
    pub blocks: Vec<Option<u64>>,
}

/// The functions of a file that ran.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By ascending id.
    pub functions: Vec<Profiled>,
    /// Time for which blocks were counted.
    pub lasted: Duration,
}

impl Profile {
    /// Returns how often blocks of a function were run; 0 if they were not counted.
    pub fn passes(&self, id: FunctionId) -> u64 {
        let found = self.functions.binary_search_by_key(&id, |one| one.id);
        let blocks = found.map_or(&[][..], |at| &self.functions[at].blocks);
        blocks.iter().flatten().sum()
    }
}

/// The functions that were called, and how often.
#[derive(Clone, Debug, Default)]
pub struct Called {
    /// Number of calls by function.
    pub calls: BTreeMap<FunctionId, u64>,
    /// Number of times that threads were found in each function.
    pub seen: BTreeMap<FunctionId, u64>,
    /// Calls for each nanosecond of processor time, by function, in several slices of time.
    pub rates: BTreeMap<FunctionId, Vec<f64>>,
}

/// The code of a file that the program has changed.
#[derive(Clone, Debug, Default)]
pub struct ChangedCode {
    bytes: Changed,
    /// The functions that have such bytes.
    pub functions: BTreeSet<FunctionId>,
}

/// Finds where the program has other code than its file.
///
/// # Errors
/// [`Error`]: the file cannot be analysed, or the program cannot be examined.
pub fn changed(program: &Program, files: &mut Files, file: usize) -> Result<ChangedCode, Error> {
    let (module, bias) = files.open(file)?;
    let code = module.image().code().iter().filter_map(|code| {
        let Range { start, end } = code.addresses;
        Some((start.wrapping_add(bias), module.bytes(start, (end - start) as usize)?))
    });
    let bytes = Changed::new(program, code)?;
    let of = |address: &u64| module.function_at(address.wrapping_sub(bias));
    let functions = bytes.addresses().iter().filter_map(of).collect();
    Ok(ChangedCode { bytes, functions })
}

/// Counts the calls of all functions of a file of the program for some time, except where a counter
/// would be in code that has been changed.
///
/// # Errors
/// [`Error`]: the file cannot be analysed, or the program cannot be changed.
pub fn called(
    program: &Program,
    files: &mut Files,
    file: usize,
    changed: &ChangedCode,
    time: Duration,
) -> Result<Called, Error> {
    let name = files.mapped(file).path.display().to_string();
    let all = Place { module: Some(name), what: What::Functions("*".to_owned()) };
    let (module, bias) = files.open(file)?;
    let of = |address: u64| module.function_at(address.wrapping_sub(bias));
    let specs = [Spec::count(all)];
    let mut prepared = watch::prepare(program, &specs, None)?;
    prepared.leave_out(&changed.bytes);
    let watch = prepared.install(program)?;
    let mut called = Called::default();
    let measured = (|| {
        let began = Instant::now();
        let mut before: Option<(BTreeMap<FunctionId, u64>, u64)> = None;
        for look in 1.. {
            // The pace of the looks; what they find does not depend on it.
            std::thread::sleep(LOOKS);
            let work = |still: &mut Still<'_>| {
                let spent = clock::of_process(program.id()).unwrap_or(0);
                Ok((still.positions()?, spent))
            };
            let ((positions, spent), _) = program.stand_still::<_, Refusal>(STOP_TIMEOUT, work)?;
            for id in positions.into_iter().filter_map(|(counter, _)| of(counter)) {
                *called.seen.entry(id).or_default() += 1;
            }
            let ends = began.elapsed() >= time;
            if look % READINGS != 0 && !ends {
                continue;
            }
            let mut reader = watch.reader();
            let mut counts = BTreeMap::new();
            for place in &watch.watched {
                let (Some(id), [watching]) = (of(place.address), &place.actions[..]) else {
                    continue;
                };
                if let Ok(Reading::Count(count)) = reader.read(watching).map(|counts| counts.all) {
                    counts.insert(id, count);
                }
            }
            if let Some((counts_before, spent_before)) = &before {
                let nanos = spent.saturating_sub(*spent_before).max(1) as f64;
                for (&id, &count) in &counts {
                    let since = count - counts_before.get(&id).copied().unwrap_or(0);
                    called.rates.entry(id).or_default().push(since as f64 / nanos);
                }
            }
            called.calls = counts.clone();
            before = Some((counts, spent));
            if ends {
                break;
            }
        }
        Ok::<_, Error>(())
    })();
    // All counts have been read.
    watch.remove_in_parts(program)?;
    called.calls.retain(|_, count| *count > 0);
    measured.map(|()| called)
}

/// Returns the functions whose blocks are worth counting, except those that have been changed.
pub fn hot(files: &Files, file: usize, called: &Called, changed: &ChangedCode) -> Vec<FunctionId> {
    let Some((module, _)) = files.opened(file) else { return Vec::new() };
    let weight = |(&id, &calls): (&FunctionId, &u64)| {
        let function = module.function(id);
        let short = function.size().min(4 * RUN) as f64;
        (id, calls as f64 * short)
    };
    let mut weights: Vec<_> = called.calls.iter().map(weight).collect();
    weights.sort_by(|one, other| other.1.total_cmp(&one.1));
    let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let mut left = all;
    let heavy = weights.into_iter().take_while(|(_, weight)| {
        let more = left > all * REST;
        left -= weight;
        more
    });
    let mut chosen: BTreeSet<FunctionId> = heavy.map(|(id, _)| id).take(MOST).collect();
    chosen.extend(called.seen.keys());
    let eligible = |id| module.function(id).convention == Convention::SystemV;
    chosen.retain(|&id| eligible(id) && !changed.functions.contains(&id));
    chosen.into_iter().collect()
}

/// Counts how often the blocks of these functions run in some time.
///
/// # Errors
/// [`Error`]: no block can be counted, or the program cannot be changed.
pub fn blocks(
    program: &Program,
    files: &mut Files,
    file: usize,
    functions: &[FunctionId],
    time: Duration,
) -> Result<Profile, Error> {
    let prepared =
        cover::prepare_functions(files, file, functions, Blocks::Roomy, Watching::Counters)?;
    let mut cover = prepared.install(program)?;
    let began = Instant::now();
    // The time for which is counted.
    std::thread::sleep(time);
    let lasted = began.elapsed();
    // Reads the counts a last time.
    cover.remove(program)?;
    let (module, bias) = files.open(file)?;
    let mut profile = Profile { functions: Vec::new(), lasted };
    for function in cover.files.iter().flat_map(|file| &file.functions) {
        let Some(id) = module.function_at(function.address) else { continue };
        let blocks: Vec<_> = function.blocks.iter().map(|block| cover.runs(block)).collect();
        if blocks.iter().flatten().any(|&count| count > 0) {
            profile.functions.push(Profiled { id, blocks });
        }
    }
    profile.functions.sort_by_key(|function| function.id);
    debug!(functions = profile.functions.len(), bias, ?lasted, "profiled");
    Ok(profile)
}
