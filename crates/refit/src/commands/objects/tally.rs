//! The outcomes of swaps: counted by their kind, with their times and the calls that they delayed.

use refit_change::{End, Report};

use crate::failure::Failure;
use crate::format;
use crate::histogram::Times;
use crate::output::Output;

/// The outcomes of the swaps so far.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The times of swaps that committed or were rolled back.
    pub(crate) times: Times,
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    pub(crate) refused: u64,
    /// The number of completed dry runs.
    pub(crate) rehearsed: u64,
    /// The number of calls that were forwarded and tracked.
    pub(crate) forwarded: u64,
    /// The number of calls that had to wait.
    pub(crate) blocked: u64,
    /// The longest wait of any of them.
    pub(crate) longest_block_ns: u64,
    /// The reason that the last failed one did not commit.
    pub(crate) why: String,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            times: Times::new(),
            committed: 0,
            rolled_back: 0,
            refused: 0,
            rehearsed: 0,
            forwarded: 0,
            blocked: 0,
            longest_block_ns: 0,
            why: String::new(),
        }
    }
}

impl Tally {
    /// Counts a swap.
    pub(crate) fn add(&mut self, report: &Report) {
        self.forwarded += report.forwarded;
        self.blocked += report.blocked;
        self.longest_block_ns = self.longest_block_ns.max(report.longest_block_ns);
        match &report.end {
            End::Committed => self.committed += 1,
            End::Rehearsed => self.rehearsed += 1,
            End::RolledBack(why) => {
                self.rolled_back += 1;
                self.why.clone_from(why);
            }
            End::Refused(why) => {
                self.refused += 1;
                self.why.clone_from(why);
                return;
            }
        }
        self.times.add(report.total_ns());
    }

    /// Returns the number of swaps that did not commit.
    pub(crate) fn failed(&self) -> u64 {
        self.rolled_back + self.refused
    }

    /// Returns the number of all swaps.
    pub(crate) fn total(&self) -> u64 {
        self.committed + self.rehearsed + self.failed()
    }

    /// Returns, for example, `12 committed, 0 rolled back, 0 refused`.
    pub(crate) fn ends(&self) -> String {
        format!(
            "{} committed, {} rolled back, {} refused",
            format::count(self.committed),
            format::count(self.rolled_back),
            format::count(self.refused)
        )
    }

    /// Returns, for example, `3 calls forwarded, 1 blocked, for 12.0 µs at most`.
    pub(crate) fn calls(&self) -> String {
        let waited = match self.blocked {
            0 => "none blocked".to_owned(),
            n => format!(
                "{} blocked, for {} at most",
                format::count(n),
                format::nanos(self.longest_block_ns)
            ),
        };
        format!("{} forwarded, {waited}", format::counted(self.forwarded, "call"))
    }

    /// Prints, for people, the outcomes, times, calls, and the picture of the times.
    pub(crate) fn print(&self, out: &mut Output) -> Result<(), Failure> {
        out.line(&format!("{}; {}", self.ends(), self.times.summary()))?;
        out.line(&self.calls())?;
        self.times.lines().iter().try_for_each(|line| out.line(line))
    }
}

#[cfg(test)]
mod tests {
    use refit_change::{Change, Phase, PhaseTime};

    use super::*;

    fn report(end: End, longest_block_ns: u64) -> Report {
        let phases = match end {
            End::Refused(_) => vec![],
            _ => vec![PhaseTime { phase: Phase::Prepare, ns: 2_000 }],
        };
        Report {
            change: Change::new(1, "swap", "fcm:/a", "shared", "partitioned", "me"),
            phases,
            end,
            forwarded: 2,
            blocked: u64::from(longest_block_ns > 0),
            longest_block_ns,
            blockers: vec![],
            target_gone: false,
            objects: 1,
            attempts: 1,
            late: false,
            transfers: vec![],
            effect: String::new(),
        }
    }

    #[test]
    fn counts_by_ends() {
        let mut tally = Tally::default();
        assert_eq!(tally.calls(), "0 calls forwarded, none blocked");
        tally.add(&report(End::Committed, 9_000));
        tally.add(&report(End::RolledBack("late".into()), 12_000));
        tally.add(&report(End::Refused("gone".into()), 0));
        assert_eq!(tally.ends(), "1 committed, 1 rolled back, 1 refused");
        assert_eq!(tally.calls(), "6 calls forwarded, 2 blocked, for 12.0 µs at most");
        assert_eq!((tally.failed(), tally.total(), &*tally.why), (2, 3, "gone"));
        assert_eq!(tally.times.lines().len(), 1, "a refusal takes no time");
    }
}
