//! `refit record --check`: measures the cost of recording a command, by running it by turns with
//! and without.
//!
//! It reports the median of each, and whether chance alone could make the difference: a permutation
//! test, which assumes nothing about the distribution of times.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::RecordArgs;
use super::launch::start;
use super::recording::record;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// The number of permutations of the times.
const DEALS: u32 = 9_999;

#[derive(Serialize)]
struct Comparison {
    without_ns: u64,
    with_ns: u64,
    /// The difference of the medians.
    difference_percent: f64,
    /// Half the distance of the quartiles of the differences of pairs.
    spread_percent: f64,
    /// The share of permutations with a difference at least as large.
    chance: f64,
    rounds: u32,
}

pub(super) fn run(args: &RecordArgs, out: &mut Output) -> Result<(), Failure> {
    let never = AtomicBool::new(false);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        // The order alternates, so that the effects of the first run favor neither.
        for recorded in [round % 2 == 0, round % 2 != 0] {
            if recorded {
                with.push(nanos(record(args, None, &never, true)?.took));
            } else {
                let begin = Instant::now();
                start(&args.command, None, true)?.wait()?;
                without.push(nanos(begin.elapsed()));
            }
        }
    }
    let found = compare(&without, &with);
    if out.json() {
        return out.object(&found);
    }
    out.line(&format!(
        "without {}, with {}: {:+.1} % ± {:.1} % ({} each; chance alone differs as much in {:.0} % of cases)",
        format::nanos(found.without_ns),
        format::nanos(found.with_ns),
        found.difference_percent,
        found.spread_percent,
        format::counted(u64::from(found.rounds), "run"),
        found.chance * 100.0
    ))
}

fn compare(without: &[u64], with: &[u64]) -> Comparison {
    let (a, b) = (quantile(without, 0.5), quantile(with, 0.5));
    let pairs = without.iter().zip(with).map(|(a, b)| 100.0 * (*b as f64 / *a as f64 - 1.0));
    let mut differences: Vec<f64> = pairs.collect();
    differences.sort_by(f64::total_cmp);
    let at = |share: f64| differences[((differences.len() - 1) as f64 * share).round() as usize];
    Comparison {
        without_ns: a,
        with_ns: b,
        difference_percent: 100.0 * (b as f64 / a as f64 - 1.0),
        spread_percent: (at(0.75) - at(0.25)) / 2.0,
        chance: chance(without, with),
        rounds: u32::try_from(with.len()).unwrap_or(u32::MAX),
    }
}

/// Returns the share of all permutations in which the two groups differ by at least as much.
fn chance(without: &[u64], with: &[u64]) -> f64 {
    let mean = |times: &[u64]| times.iter().sum::<u64>() as f64 / times.len() as f64;
    let found = (mean(with) - mean(without)).abs();
    let mut all = [without, with].concat();
    // A constant seed, so that two evaluations of the same times agree.
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut as_large = 1;
    for _ in 0..DEALS {
        for i in (1..all.len()).rev() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            all.swap(i, (seed % (i as u64 + 1)) as usize);
        }
        let (a, b) = all.split_at(without.len());
        as_large += u32::from((mean(b) - mean(a)).abs() >= found);
    }
    f64::from(as_large) / f64::from(DEALS + 1)
}

fn quantile(times: &[u64], share: f64) -> u64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share).round() as usize]
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_differ_beyond_chance_are_told_from_those_that_do_not() {
        let without = [100, 101, 99, 100, 102, 98, 100];
        let slower = without.map(|time| time * 2);
        let found = compare(&without, &slower);
        assert_eq!((found.without_ns, found.with_ns, found.rounds), (100, 200, 7));
        assert!((found.difference_percent - 100.0).abs() < 1e-9 && found.spread_percent < 1e-9);
        assert!(found.chance < 0.01, "{}", found.chance);
        let same = compare(&without, &[101, 100, 98, 102, 100, 99, 100]);
        assert!(same.chance > 0.3, "{}", same.chance);
    }
}
