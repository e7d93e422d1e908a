//! The journal entries of optimisations.

use refit_change::{Change, End, Phase, Report, Timeline};
use refit_optimize::{Outcome, Step, Verdict};
use refit_splice::process::Program;

use crate::commands::code::proof;
use crate::journal;

/// The code of a program as its linker has laid it out, and as refit has.
const LINKED: &str = "as linked";
const ANEW: &str = "laid out anew";

/// An optimisation in progress.
#[derive(Debug)]
pub(super) struct Optimisation(Timeline);

impl Optimisation {
    pub(super) fn begin() -> Self {
        Self(Timeline::begin())
    }

    /// Follows a step: the copies are installed after the code has been laid out.
    pub(super) fn step(&mut self, step: &Step) {
        if matches!(step, Step::LaidOut(..)) {
            self.0.enter(Phase::Install);
        }
    }

    /// Records the end, unless nothing was changed.
    pub(super) fn end(mut self, program: &Program, outcome: &Outcome) {
        let effect = proof::effect(&outcome.verdict);
        let (phase, end, effect) = match outcome.verdict {
            Verdict::Rehearsed => return,
            Verdict::Undone(_) => (Phase::RollBack, End::RolledBack(effect), String::new()),
            Verdict::Kept(_) | Verdict::Unproved | Verdict::FromProfile => {
                (Phase::Commit, End::Committed, effect)
            }
        };
        self.0.enter(phase);
        record(program, [LINKED, ANEW], self.0, end, effect);
    }
}

/// An undo in progress.
#[derive(Debug)]
pub(super) struct Undo(Timeline);

impl Undo {
    pub(super) fn begin() -> Self {
        Self(Timeline::begin())
    }

    /// Records that copies have been taken out.
    pub(super) fn end(mut self, program: &Program) {
        self.0.enter(Phase::Commit);
        record(program, [ANEW, LINKED], self.0, End::Committed, String::new());
    }
}

fn record(program: &Program, states: [&str; 2], timeline: Timeline, end: End, effect: String) {
    journal::record(program, states, |change: Change| Report {
        phases: timeline.end(),
        end,
        effect,
        objects: 1,
        attempts: 1,
        ..Report::refused(change, "")
    });
}
