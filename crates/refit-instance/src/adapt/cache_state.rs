//! The decisions about one cache.

use super::rules::{Counts, MIN_COUNT, RULES, Rule};
use crate::wire::Adapt;

/// The number of consecutive intervals that must agree.
const VOTES_NEEDED: u32 = 2;
/// The number of intervals without calls after which a detector is removed.
const MAX_QUIET: u32 = 50;
/// The number of intervals for which a swap is evaluated, and for which a cache is left alone after
/// its first failed swap.
const PROBATION: u32 = 5;

/// The state of a cache.
#[derive(Debug, Default)]
pub(super) struct CacheState {
    detection: [Detection; RULES.len()],
    /// The last swap, unless it was undone.
    swapped: Option<LastSwap>,
    /// The number of intervals until the cache is examined again.
    rest: u32,
    /// The number of swaps that were undone.
    undone: u32,
}

/// The state of a cache for one rule.
#[derive(Clone, Copy, Debug, Default)]
struct Detection {
    /// The counters at the last interval.
    work: u64,
    calls: u64,
    of_kind: u64,
    /// Whether this request attached the detector.
    attached: bool,
    /// The number of consecutive intervals in favor of a change, and of intervals without calls.
    votes: u32,
    quiet: u32,
}

#[derive(Debug)]
struct LastSwap {
    rule: usize,
    from: String,
    /// The work in the interval before the swap.
    before: u64,
    /// The number of intervals since the swap, and the work in them.
    beats: u32,
    since: u64,
}

/// An action on a cache, by the rule of this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Attach(usize),
    Detach(usize),
    Swap(String),
}

/// The share of the calls of a kind in an interval.
struct Share {
    percent: u64,
    work: u64,
}

impl CacheState {
    /// Decides what to do with a cache that has this implementation and, for each rule that applies
    /// to it, these counters.
    pub(super) fn decide(
        &mut self,
        implementation: &str,
        counts: &[Option<Counts>; RULES.len()],
        request: &Adapt,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut shares = [const { None }; RULES.len()];
        let mut work = [0; RULES.len()];
        for (rule, counts) in counts.iter().enumerate() {
            let Some(counts) = counts else { continue };
            work[rule] = self.detection[rule].work_since(counts);
            match self.detection[rule].examine(counts, work[rule]) {
                Ok(share) => shares[rule] = share,
                Err(Change::Attach) => actions.push(Action::Attach(rule)),
                Err(Change::Detach) if !self.is_swapped_by(rule) => {
                    actions.push(Action::Detach(rule));
                }
                Err(Change::Detach) => {}
            }
        }
        if let Some(back) = self.undo(&work) {
            actions.push(back);
        } else if self.rest > 0 {
            self.rest -= 1;
        } else if let Some(to) = self.vote(implementation, &shares, request) {
            actions.push(Action::Swap(to));
        }
        actions
    }

    /// Records whether a detector could be attached.
    pub(super) fn attached(&mut self, rule: usize, is_attached: bool) {
        self.detection[rule].attached = is_attached;
    }

    /// Returns the former implementation of a cache that is swapped.
    pub(super) fn former(&self) -> Option<&str> {
        self.swapped.as_ref().map(|swap| swap.from.as_str())
    }

    /// Returns the rules whose detector this request has attached.
    pub(super) fn detectors(&self) -> impl Iterator<Item = &'static Rule> {
        RULES.iter().zip(&self.detection).filter(|(_, one)| one.attached).map(|(rule, _)| rule)
    }

    fn is_swapped_by(&self, rule: usize) -> bool {
        self.swapped.as_ref().is_some_and(|swap| swap.rule == rule)
    }

    /// Returns the implementation for which enough intervals have voted. A swapped cache is swapped
    /// back before another rule decides.
    fn vote(
        &mut self,
        implementation: &str,
        shares: &[Option<Share>; RULES.len()],
        request: &Adapt,
    ) -> Option<String> {
        for (number, (rule, share)) in RULES.iter().zip(shares).enumerate() {
            let Some(share) = share else { continue };
            let thresholds = rule.thresholds(request);
            let wants = match &self.swapped {
                None => share.percent >= thresholds.above && implementation != rule.implementation,
                Some(swap) => swap.rule == number && share.percent < thresholds.below,
            };
            let votes = &mut self.detection[number].votes;
            *votes = if wants { *votes + 1 } else { 0 };
            if *votes < VOTES_NEEDED {
                continue;
            }
            self.detection.iter_mut().for_each(|detection| detection.votes = 0);
            return Some(match self.swapped.take() {
                Some(swap) => swap.from,
                None => {
                    let (from, before) = (implementation.to_owned(), share.work);
                    self.swapped =
                        Some(LastSwap { rule: number, from, before, beats: 0, since: 0 });
                    rule.implementation.to_owned()
                }
            });
        }
        None
    }

    /// Returns the swap back to the former implementation if the cache does worse than before.
    fn undo(&mut self, work: &[u64; RULES.len()]) -> Option<Action> {
        let swapped = self.swapped.as_mut().filter(|swapped| swapped.beats < PROBATION)?;
        swapped.beats += 1;
        swapped.since += work[swapped.rule];
        let mean = swapped.since / u64::from(PROBATION);
        let is_worse = (RULES[swapped.rule].is_worse)(swapped.before, mean);
        if swapped.beats < PROBATION || !is_worse {
            return None;
        }
        let from = self.swapped.take()?.from;
        self.undone += 1;
        self.rest = PROBATION << self.undone.min(10);
        Some(Action::Swap(from))
    }
}

/// A change of the detector.
enum Change {
    Attach,
    Detach,
}

impl Detection {
    /// Returns the work since the last interval.
    fn work_since(&mut self, counts: &Counts) -> u64 {
        let since = counts.work.saturating_sub(self.work);
        self.work = counts.work;
        since
    }

    /// Returns the share of calls of the kind since the last interval; `None` if there were too
    /// few.
    fn examine(&mut self, counts: &Counts, work: u64) -> Result<Option<Share>, Change> {
        let Some((calls, of_kind)) = counts.detected else {
            (self.calls, self.of_kind, self.attached) = (0, 0, false);
            return if work >= MIN_COUNT { Err(Change::Attach) } else { Ok(None) };
        };
        let new = calls.saturating_sub(self.calls);
        let new_of_kind = of_kind.saturating_sub(self.of_kind);
        (self.calls, self.of_kind) = (calls, of_kind);
        if new < MIN_COUNT {
            self.quiet += 1;
            let goes = self.attached && self.quiet >= MAX_QUIET;
            return if goes { Err(Change::Detach) } else { Ok(None) };
        }
        self.quiet = 0;
        Ok(Some(Share { percent: new_of_kind * 100 / new, work }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapt::rules::{ASKED, CONCURRENCY, SEQUENCE};

    /// Passes the same counts to a cache for a number of intervals: calls, those of the rule's
    /// kind, and work.
    fn beats(
        known: &mut CacheState,
        rule: usize,
        serves: &str,
        count: u32,
        each: (u64, u64, u64),
    ) -> Vec<Action> {
        let mut acts = Vec::new();
        for _ in 0..count {
            let before = known.detection[rule];
            let detected = Some((before.calls + each.0, before.of_kind + each.1));
            let mut counts = [None; RULES.len()];
            counts[rule] = Some(Counts { work: before.work + each.2, detected });
            acts.extend(known.decide(serves, &counts, &ASKED));
        }
        acts
    }

    fn with_detector(rule: usize) -> CacheState {
        let mut known = CacheState::default();
        known.attached(rule, true);
        known
    }

    #[test]
    fn a_cache_gets_a_detector_when_it_has_work_and_loses_it_when_nothing_happens() {
        for rule in [SEQUENCE, CONCURRENCY] {
            let mut known = CacheState::default();
            let mut decide = |work| {
                let mut counts = [None; RULES.len()];
                counts[rule] = Some(Counts { work, detected: None });
                known.decide("shared", &counts, &ASKED)
            };
            assert_eq!(decide(MIN_COUNT - 1), []);
            assert_eq!(decide(3 * MIN_COUNT), [Action::Attach(rule)]);
            known.attached(rule, true);
            let few = (MIN_COUNT - 1, 0, 0);
            assert_eq!(beats(&mut known, rule, "shared", MAX_QUIET - 1, few), []);
            assert_eq!(beats(&mut known, rule, "shared", 1, (0, 0, 0)), [Action::Detach(rule)]);
        }
    }

    #[test]
    fn it_is_swapped_there_and_back_with_its_use_and_not_by_what_lies_between() {
        for (rule, best, much, between, little) in
            [(SEQUENCE, "sequential", 95, 60, 10), (CONCURRENCY, "partitioned", 30, 10, 2)]
        {
            let mut known = with_detector(rule);
            let mut beats = |serves, count, percent| {
                beats(&mut known, rule, serves, count, (100, percent, 100))
            };
            assert_eq!(beats("shared", 20, between), []);
            assert_eq!(beats("shared", VOTES_NEEDED, much), [Action::Swap(best.into())]);
            assert_eq!(beats(best, 20, between), []);
            assert_eq!(beats(best, 1, little), []);
            assert_eq!(beats(best, 1, much), [], "one beat is none");
            assert_eq!(beats(best, VOTES_NEEDED, little), [Action::Swap("shared".into())]);
        }
    }

    #[test]
    fn what_does_worse_is_undone_and_left_alone_for_longer_each_time() {
        for (rule, best, before, worse) in [
            (SEQUENCE, "sequential", (100, 99, 50), (500, 495, 500)),
            (CONCURRENCY, "partitioned", (500, 495, 500), (100, 99, 50)),
        ] {
            let mut known = with_detector(rule);
            let mut pauses = Vec::new();
            for _ in 0..3 {
                assert_eq!(beats(&mut known, rule, "shared", VOTES_NEEDED, before).len(), 1);
                let undone = beats(&mut known, rule, best, PROBATION, worse);
                assert_eq!(undone, [Action::Swap("shared".into())]);
                pauses.push(known.rest);
                let rest = known.rest;
                assert_eq!(beats(&mut known, rule, "shared", rest, before), []);
            }
            assert_eq!(pauses, [2 * PROBATION, 4 * PROBATION, 8 * PROBATION]);
        }
    }

    #[test]
    fn a_swapped_cache_is_left_to_the_rule_that_has_swapped_it() {
        let mut known = with_detector(SEQUENCE);
        known.attached(CONCURRENCY, true);
        let sequential = beats(&mut known, SEQUENCE, "shared", VOTES_NEEDED, (100, 99, 100));
        assert_eq!(sequential, [Action::Swap("sequential".into())]);
        assert_eq!(beats(&mut known, CONCURRENCY, "sequential", 20, (100, 99, 100)), []);
        let back = beats(&mut known, SEQUENCE, "sequential", VOTES_NEEDED, (100, 0, 100));
        assert_eq!(back, [Action::Swap("shared".into())]);
        let overlapping = beats(&mut known, CONCURRENCY, "shared", VOTES_NEEDED, (100, 99, 100));
        assert_eq!(overlapping, [Action::Swap("partitioned".into())]);
    }
}
