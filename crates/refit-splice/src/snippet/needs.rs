//! Says which registers and how much stack steps need.

use super::formula::Kept;
use super::registers::{FETCHING, Needs, Set};
use super::setting::Lane;
use super::step::{Action, Clock, Fold, Step};
use super::value::Base;

/// Returns an upper bound of the number of registers that a snippet with these steps moves, with
/// one for flags, whatever its surroundings are.
pub(crate) fn most_moved(steps: &[Step]) -> usize {
    let lanes = [Lane::Area(0), Lane::Asked, Lane::One];
    let each = lanes.iter().flat_map(|&lane| steps.iter().map(move |step| step.needs(None, lane)));
    let all = each.reduce(|mut all, one| {
        all.take(one);
        all
    });
    all.map_or(0, |all| (all.scratch + all.fixed.count() + 2).min(17))
}

impl Step {
    /// Returns the registers and the stack that it needs.
    pub(super) fn needs(&self, thread: Option<i32>, lane: Lane) -> Needs {
        let mut needs = self.action.needs(lane);
        if self.threads() > 0 && self.key.is_none() {
            needs.take(Base::Context.needs(thread, lane));
        }
        for value in self.values() {
            needs.reads |= value.reads();
            needs.take(value.base.needs(thread, lane));
        }
        for item in self.items() {
            needs.take(item.needs());
        }
        if let Some(formula) = self.formula() {
            needs.take(formula.needs());
        }
        if self.when.iter().flatten().any(|test| !test.is_small()) {
            needs.scratch = needs.scratch.max(2);
        }
        if !self.when.is_empty() {
            needs.scratch = needs.scratch.max(1);
        }
        if self.key.is_some() && self.threads() == 0 {
            // The lane, the key, the place and count of the search, and the value of the action. A
            // key of several items takes no more.
            needs.scratch = needs.scratch.max(5);
            needs.fixed |= Set::of(&[0]);
        }
        needs
    }
}

impl Action {
    fn needs(&self, lane: Lane) -> Needs {
        let needs = |scratch, fixed| Needs { scratch, fixed, reads: Set::NONE, stack: false };
        match self {
            Self::Poison { .. } | Self::FindFrame | Self::FindObject | Self::Flag { .. } => {
                needs(0, Set::NONE)
            }
            Self::Count { .. } if lane == Lane::One => needs(0, Set::NONE),
            Self::Count { .. } => needs(1, Set::NONE),
            Self::Histogram { .. } | Self::Buckets { .. } | Self::Fold { fold: Fold::Sum, .. } => {
                needs(2, Set::NONE)
            }
            Self::Fold { .. } => needs(2, Set::of(&[0])),
            // `rdtsc` returns the time in these.
            Self::Time { clock: Clock::Wall, .. } | Self::Durations { clock: Clock::Wall, .. } => {
                needs(3, Set::of(&[0, 2]))
            }
            Self::Time { clock: Clock::Thread, .. }
            | Self::Durations { clock: Clock::Thread, .. } => {
                // The call with its arguments, and the register in which the time is computed.
                let fixed = Set::SYSCALL | Set::of(&[2, 6, 7]);
                Needs { stack: true, ..needs(3, fixed) }
            }
            Self::Event { .. } => needs(6, Set::of(&[0, 2])),
            Self::Print { .. } => Needs { stack: true, ..needs(6, Set::of(&[0, 2])) },
            // The formula's own needs are added.
            Self::Assign { .. } => Needs { stack: true, ..needs(1, Set::NONE) },
            Self::Keep { .. } => Kept::NEEDS,
        }
    }
}

impl Base {
    /// Returns what finding the value needs, in addition to the register that receives it.
    fn needs(self, thread: Option<i32>, lane: Lane) -> Needs {
        let call = |fixed: Set, stack| Needs { scratch: 1, fixed, reads: Set::NONE, stack };
        match self {
            Self::Register(_) => call(Set::NONE, false),
            Self::Thread | Self::Context if thread.is_some() => call(Set::NONE, false),
            Self::Goroutine => call(Set::NONE, false),
            Self::Local(_) => call(Set::NONE, true),
            Self::Time => call(Set::of(&[0, 2]), false),
            Self::Processor if lane != Lane::One => call(Set::NONE, false),
            Self::Processor => call(Set::SYSCALL | Set::of(&[2, 6, 7]), true),
            Self::Thread | Self::Process | Self::Context => call(Set::SYSCALL, false),
            Self::Memory { .. } | Self::Stack(_) => FETCHING,
        }
    }
}
