//! The results of the tour, and their verdict.

use console::Style;
use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::output::Output;

use super::pair::{self, Tally};
use super::postmark::Outcome;
use super::screen::{Phase, Scene};
use super::swapper::Swaps;

/// The minimum number of swaps of a cache in use; fewer prove nothing.
const ENOUGH: u64 = 100;

/// The throughput, in percent of that without swaps, below which the tour reports it. It does not
/// affect the verdict: the machine may have other load.
const SLOW_PERCENT: f64 = 85.0;

/// All measurements, and the objections.
pub(super) struct Verdict {
    phases: Vec<Phase>,
    runs: Vec<Outcome>,
    swaps: Swaps,
    live: Tally,
    at_rest: Tally,
    against: Vec<String>,
}

/// The verdict for programs.
#[derive(Serialize)]
struct Line<'a> {
    good: bool,
    against: &'a [String],
    swaps_committed: u64,
    swaps_rolled_back: u64,
    swaps_refused: u64,
    swap_median_ns: u64,
    swap_longest_ns: u64,
    calls_forwarded: u64,
    calls_blocked: u64,
    longest_block_ns: u64,
    bytes_checked: u64,
    bytes_wrong: u64,
    operations_failed: u64,
    transactions_per_second: Vec<u64>,
    throughput_ratio: f64,
}

impl Verdict {
    pub(super) fn new(
        phases: Vec<Phase>,
        runs: Vec<Outcome>,
        swaps: Swaps,
        live: Tally,
        at_rest: Tally,
    ) -> Self {
        let mut verdict = Verdict { phases, runs, swaps, live, at_rest, against: Vec::new() };
        verdict.against = verdict.weigh();
        verdict
    }

    pub(super) fn good(&self) -> bool {
        self.against.is_empty()
    }

    fn weigh(&self) -> Vec<String> {
        let mut against = Vec::new();
        for (when, tally) in [("while it was served", &self.live), ("afterwards", &self.at_rest)] {
            let first = tally.first.as_deref().unwrap_or_default();
            if tally.wrong > 0 {
                against.push(format!("{} bytes were wrong {when}: {first}", tally.wrong));
            }
            if tally.failed > 0 {
                against.push(format!("{} operations failed {when}: {first}", tally.failed));
            }
            if tally.checked == 0 {
                against.push(format!("nothing was checked {when}"));
            }
        }
        for run in &self.runs {
            if let Some(complaint) = &run.complaint {
                against.push(format!("postmark: {complaint}"));
            }
        }
        if self.runs.iter().any(|run| run.counts != self.runs[0].counts) {
            against.push("the counts of postmark differ between phases".to_owned());
        }
        let (least, why) = self.swaps.look(|inner| {
            let all = inner.of_checked.len() == pair::FILES;
            let least = inner.of_checked.values().min().copied().filter(|_| all);
            (least.unwrap_or(0), inner.tally.why.clone())
        });
        if least < ENOUGH {
            let why = if why.is_empty() { "the time was too short" } else { &why };
            against.push(format!("a checked cache was swapped only {least} times: {why}"));
        }
        against
    }

    /// Returns the throughput of the phases with swaps over that of the others: the median of the
    /// ratios of each phase with swaps to the two beside it, so that other load of the machine
    /// affects both.
    fn ratio(&self) -> f64 {
        let rate = |phase: &Phase| phase.per_second.unwrap_or(0) as f64;
        let beside = self.phases.windows(3).filter(|three| three[1].swaps && !three[0].swaps);
        let compared = |three: &[Phase]| {
            let quiet = f64::midpoint(rate(&three[0]), rate(&three[2]));
            if quiet > 0.0 { rate(&three[1]) / quiet } else { 0.0 }
        };
        let mut all: Vec<f64> = beside.map(compared).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }

    pub(super) fn print(&self, out: &mut Output) -> Result<(), Failure> {
        if out.json() {
            return out.object(&self.line());
        }
        let head = |text: &str| Style::new().bold().apply_to(format!("{text:<12}")).to_string();
        let Verdict { phases, swaps, live, .. } = self;
        out.line("")?;
        for line in (Scene { phases, bytes: live, swaps, rate: None }).lines(false) {
            out.painted(&line)?;
        }
        out.line("")?;
        let percent = self.ratio() * 100.0;
        out.painted(&format!("{}with swaps, {percent:.0} % of that without", head("throughput")))?;
        out.painted(&format!(
            "{}unmounted; {} compared in the source directory, {} wrong",
            head("afterwards"),
            format::size(self.at_rest.checked),
            format::count(self.at_rest.wrong + self.at_rest.failed)
        ))?;
        let runs = self.runs.len();
        let same = self.runs.iter().all(|run| run.counts == self.runs[0].counts);
        out.painted(&format!(
            "{}{} results in {runs} runs: {}",
            head("postmark"),
            if same { "the same" } else { "DIFFERENT" },
            self.runs.first().map(|run| summary(&run.counts)).unwrap_or_default()
        ))?;
        let (least, most) = swaps.look(|inner| {
            let counts = inner.of_checked.values();
            (counts.clone().min().copied(), counts.max().copied())
        });
        out.painted(&format!(
            "{}each checked file\u{2019}s cache was swapped {} to {} times while it was in use",
            head("swaps"),
            format::count(least.unwrap_or(0)),
            format::count(most.unwrap_or(0))
        ))?;
        out.line("")?;
        if percent < SLOW_PERCENT {
            out.line(&format!(
                "slow: swaps cost {:.0} % of the throughput, usually at most {:.0} %; check whether other programs use the \
                 processors or the disk, and run the tour again",
                100.0 - percent,
                100.0 - SLOW_PERCENT
            ))?;
        }
        if self.good() {
            let good = Style::new().green().bold().apply_to("good");
            return out.painted(&format!(
                "verdict: {good}. Caches were swapped under running programs; nothing was lost."
            ));
        }
        for reason in &self.against {
            out.line(&format!("failed: {reason}"))?;
        }
        out.painted(&format!("verdict: {}", Style::new().red().bold().apply_to("BAD")))
    }

    fn line(&self) -> Line<'_> {
        self.swaps.look(|inner| Line {
            good: self.good(),
            against: &self.against,
            swaps_committed: inner.tally.committed,
            swaps_rolled_back: inner.tally.rolled_back,
            swaps_refused: inner.tally.refused,
            swap_median_ns: inner.tally.times.quantile(0.5),
            swap_longest_ns: inner.tally.times.max(),
            calls_forwarded: inner.tally.forwarded,
            calls_blocked: inner.tally.blocked,
            longest_block_ns: inner.tally.longest_block_ns,
            bytes_checked: self.live.checked + self.at_rest.checked,
            bytes_wrong: self.live.wrong + self.at_rest.wrong,
            operations_failed: self.live.failed + self.at_rest.failed,
            transactions_per_second: self.runs.iter().map(Outcome::per_second).collect(),
            throughput_ratio: self.ratio(),
        })
    }
}

/// Returns the counts that do not begin with a word: created, read, appended, deleted.
fn summary(counts: &[String]) -> String {
    let plain = counts.iter().filter(|c| c.starts_with(|first: char| first.is_ascii_digit()));
    plain.take(4).map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(seconds: u64) -> Outcome {
        Outcome {
            transactions: 1000,
            wall: Duration::from_secs(seconds),
            counts: vec!["5 created".into(), "Creation alone: 2 files".into()],
            complaint: None,
        }
    }

    fn swaps(of_each: u64) -> Swaps {
        let swaps = Swaps::default();
        swaps.look(|inner| {
            inner.of_checked = (0..pair::FILES).map(|i| (i.to_string(), of_each)).collect();
        });
        swaps
    }

    fn phases(runs: &[Outcome]) -> Vec<Phase> {
        let phase = |(i, run): (usize, &Outcome)| Phase {
            swaps: i % 2 == 1,
            per_second: Some(run.per_second()),
        };
        runs.iter().enumerate().map(phase).collect()
    }

    fn checked() -> Tally {
        Tally { checked: 1, ..Tally::default() }
    }

    #[test]
    fn good_is_good() {
        let runs = vec![run(1), run(2), run(1)];
        let verdict = Verdict::new(phases(&runs), runs, swaps(ENOUGH), checked(), checked());
        assert_eq!(verdict.against, [""; 0]);
        assert!((verdict.ratio() - 0.5).abs() < 1e-9, "slow is no mistake");
        assert_eq!(summary(&verdict.runs[0].counts), "5 created");
    }

    #[test]
    fn every_mistake_speaks_against_it() {
        let runs = || vec![run(1), run(1), run(1)];
        let against = |runs: Vec<Outcome>, swaps, live, at_rest| {
            Verdict::new(phases(&runs), runs, swaps, live, at_rest).against
        };
        let wrong = Tally { wrong: 8, ..checked() };
        let failed = Tally { failed: 1, ..checked() };
        assert_eq!(against(runs(), swaps(ENOUGH), wrong, checked()).len(), 1);
        assert_eq!(against(runs(), swaps(ENOUGH), checked(), failed).len(), 1);
        assert_eq!(against(runs(), swaps(ENOUGH), checked(), Tally::default()).len(), 1);
        assert_eq!(against(runs(), swaps(ENOUGH - 1), checked(), checked()).len(), 1);
        let mut other = runs();
        other[1].counts[0] = "6 created".into();
        other[2].complaint = Some("Error".into());
        assert_eq!(against(other, swaps(ENOUGH), checked(), checked()).len(), 2);
    }
}
