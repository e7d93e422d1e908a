//! The stopwatch of a change in progress.

use std::time::{Duration, Instant};

use crate::report::{Phase, PhaseTime};
use crate::watch::{self, Step};

/// The stopwatch of a change: its current phase, and the durations of the earlier ones.
///
/// A change moves forward through the phases, or from any of them to [`Phase::RollBack`]; anything
/// else is a mistake of the mechanism and panics in debug builds.
#[derive(Debug)]
pub struct Timeline {
    phase: Phase,
    since: Instant,
    done: Vec<PhaseTime>,
}

impl Timeline {
    /// Starts in [`Phase::Prepare`].
    pub fn begin() -> Self {
        watch::tell(Step::Phase { left: None, entered: Some(Phase::Prepare) });
        Timeline { phase: Phase::Prepare, since: Instant::now(), done: Vec::with_capacity(6) }
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the time at which the current phase began.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Ends the current phase and enters `next`.
    pub fn enter(&mut self, next: Phase) {
        debug_assert!(next as u8 > self.phase as u8, "{:?} does not follow {:?}", next, self.phase);
        let now = Instant::now();
        self.done.push(PhaseTime { phase: self.phase, ns: nanos(now - self.since) });
        watch::tell(Step::Phase { left: Some(self.phase), entered: Some(next) });
        self.phase = next;
        self.since = now;
    }

    /// Ends the last phase and returns all of them.
    pub fn end(mut self) -> Vec<PhaseTime> {
        self.done.push(PhaseTime { phase: self.phase, ns: nanos(self.since.elapsed()) });
        watch::tell(Step::Phase { left: Some(self.phase), entered: None });
        self.done
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeline_gives_the_phases_in_the_order_they_were_entered() {
        let mut timeline = Timeline::begin();
        assert_eq!(timeline.phase(), Phase::Prepare);
        timeline.enter(Phase::Install);
        timeline.enter(Phase::Quiesce);
        timeline.enter(Phase::RollBack);
        let phases: Vec<Phase> = timeline.end().into_iter().map(|p| p.phase).collect();
        assert_eq!(phases, [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::RollBack]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Install does not follow Transfer")]
    fn timeline_does_not_go_back() {
        let mut timeline = Timeline::begin();
        timeline.enter(Phase::Transfer);
        timeline.enter(Phase::Install);
    }
}
