//! What the tour has shown, and whether it was good.

use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::output::Output;

use super::pair::Tally;
use super::postmark::Outcome;
use super::swapper::Swaps;

/// Fewer swaps than this show nothing.
const ENOUGH: u64 = 100;

/// Everything that was measured, and what speaks against it.
pub(super) struct Verdict {
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
    bytes_checked: u64,
    bytes_wrong: u64,
    operations_failed: u64,
    transactions_per_second: Vec<u64>,
    throughput_ratio: f64,
}

impl Verdict {
    pub(super) fn new(runs: Vec<Outcome>, swaps: Swaps, live: Tally, at_rest: Tally) -> Self {
        let mut verdict = Verdict { runs, swaps, live, at_rest, against: Vec::new() };
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
            against.push("postmark did not count the same each time".to_owned());
        }
        if self.swaps.committed < ENOUGH {
            let why = if self.swaps.why.is_empty() { "there was no time" } else { &self.swaps.why };
            against.push(format!("only {} swaps committed: {why}", self.swaps.committed));
        }
        against
    }

    /// Throughput during the swaps over that without them.
    fn ratio(&self) -> f64 {
        let [before, during, after] =
            self.runs[..].iter().map(|r| r.per_second() as f64).collect::<Vec<_>>()[..]
        else {
            return 0.0;
        };
        let without = f64::midpoint(before, after);
        if without > 0.0 { during / without } else { 0.0 }
    }

    pub(super) fn print(&self, out: &mut Output) -> Result<(), Failure> {
        if out.json() {
            return out.object(&self.line());
        }
        let swaps = &self.swaps;
        out.line("")?;
        out.line(&format!(
            "swaps        {} committed, {} rolled back, {} refused; {}",
            format::count(swaps.committed),
            format::count(swaps.rolled_back),
            format::count(swaps.refused),
            swaps.times.summary()
        ))?;
        out.line(&format!(
            "             {} forwarded while they were tracked, {} had to wait",
            format::counted(swaps.forwarded, "call"),
            format::count(swaps.blocked)
        ))?;
        for line in swaps.times.lines() {
            out.line(&format!("             {line}"))?;
        }
        out.line(&format!(
            "bytes        {} checked while it was served, {} afterwards in the source; {} wrong",
            format::size(self.live.checked),
            format::size(self.at_rest.checked),
            format::count(self.live.wrong + self.at_rest.wrong)
        ))?;
        let same = self.runs.iter().all(|run| run.counts == self.runs[0].counts);
        out.line(&format!(
            "postmark     counted {} three times: {}",
            if same { "the same" } else { "NOT the same" },
            self.runs.first().map(|run| summary(&run.counts)).unwrap_or_default()
        ))?;
        out.line(&format!("throughput   {:.1} % of that without swaps", self.ratio() * 100.0))?;
        out.line("")?;
        if self.good() {
            return out.line(
                "verdict: good. Caches were swapped under running programs; nothing was lost.",
            );
        }
        for reason in &self.against {
            out.line(&format!("against it: {reason}"))?;
        }
        out.line("verdict: BAD.")
    }

    fn line(&self) -> Line<'_> {
        Line {
            good: self.good(),
            against: &self.against,
            swaps_committed: self.swaps.committed,
            swaps_rolled_back: self.swaps.rolled_back,
            swaps_refused: self.swaps.refused,
            swap_median_ns: self.swaps.times.quantile(0.5),
            swap_longest_ns: self.swaps.times.max(),
            calls_forwarded: self.swaps.forwarded,
            calls_blocked: self.swaps.blocked,
            bytes_checked: self.live.checked + self.at_rest.checked,
            bytes_wrong: self.live.wrong + self.at_rest.wrong,
            operations_failed: self.live.failed + self.at_rest.failed,
            transactions_per_second: self.runs.iter().map(Outcome::per_second).collect(),
            throughput_ratio: self.ratio(),
        }
    }
}

/// The counts that do not begin with a word: created, read, appended, deleted, and the data.
fn summary(counts: &[String]) -> String {
    let plain = counts.iter().filter(|c| c.starts_with(|first: char| first.is_ascii_digit()));
    plain.map(String::as_str).collect::<Vec<_>>().join(", ")
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

    fn swaps(committed: u64) -> Swaps {
        Swaps { committed, ..Swaps::default() }
    }

    fn checked() -> Tally {
        Tally { checked: 1, ..Tally::default() }
    }

    #[test]
    fn good_is_good() {
        let verdict =
            Verdict::new(vec![run(1), run(2), run(1)], swaps(ENOUGH), checked(), checked());
        assert_eq!(verdict.against, [""; 0]);
        assert!((verdict.ratio() - 0.5).abs() < 1e-9, "slow is no mistake");
        assert_eq!(summary(&verdict.runs[0].counts), "5 created");
    }

    #[test]
    fn every_mistake_speaks_against_it() {
        let runs = || vec![run(1), run(1), run(1)];
        let against = |runs, swaps, live, at_rest| Verdict::new(runs, swaps, live, at_rest).against;
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
