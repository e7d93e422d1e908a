//! Swaps of caches according to their use: adaptive page replacement (Soules 2003, §6.3).
//!
//! Each request runs a loop for as long as the client is connected. At each interval the loop
//! examines all matching caches:
//!
//! 1. *Measure.* A cache with page misses gets a detector, the wrapper `sequential`. A cache that
//!    has long been unused loses it.
//! 2. *Decide.* The share of accesses since the last interval that follow one another is compared
//!    with two thresholds. A cache is swapped when the share is at least `above`, or below `below`,
//!    for two consecutive intervals. A share in between changes nothing.
//! 3. *Change.* The cache is swapped to `sequential`, or back to its former implementation.
//! 4. *Check, undo.* If more than twice as many pages are missed after the swap as before, the
//!    cache is swapped back and left alone for a period that doubles each time.
//!
//! At the end the detectors are removed, and the caches get their former implementations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refit_change::Report;
use refit_objects::pace::sleep_until;
use refit_objects::{Clustering, Handover};
use tokio::sync::mpsc::Sender;

use crate::context::Shared;
use crate::glob::Glob;
use crate::recording;
use crate::refusal::{Kind, Refusal};
use crate::system::{SwapRequest, WrapAct, WrapRequest};
use crate::wire::{Adapt, ObjectInfo};

/// The wrapper that detects sequential accesses, and its settings for each interface.
const DETECTOR: &str = "sequential";
const INTERFACES: [(&str, &[(&str, &str)]); 2] = [
    ("anonymous", &[("method", "lend"), ("offset", "page"), ("unit", "4096")]),
    ("fcm", &[("method", "read")]),
];
/// The implementation that serves sequential accesses best.
const SEQUENTIAL: &str = "sequential";
/// The minimum number of accesses or missed pages in an interval from which a decision is made.
const MIN_COUNT: u64 = 32;
/// The number of consecutive intervals that must agree.
const VOTES_NEEDED: u32 = 2;
/// The number of intervals without accesses after which a detector is removed.
const MAX_QUIET: u32 = 50;
/// The number of intervals for which a swap is evaluated, and for which a cache is left alone after
/// its first failed swap.
const PROBATION: u32 = 5;
/// The longest sleep before the thread checks again whether the client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A request in progress.
pub(crate) struct Work {
    pub(crate) shared: Shared,
    pub(crate) request: Adapt,
    pub(crate) owner: String,
    /// Becomes true when the client has disconnected.
    pub(crate) disconnected: Arc<AtomicBool>,
    pub(crate) sender: Sender<Report>,
}

/// The state of a cache.
#[derive(Debug, Default)]
struct CacheState {
    /// The counters at the last interval: missed pages, accesses, and accesses that followed
    /// another.
    faults: u64,
    accesses: u64,
    following: u64,
    /// Whether this request attached the detector.
    attached: bool,
    /// The number of consecutive intervals in favor of a change, of intervals without accesses, and
    /// of intervals until the cache is examined again.
    votes: u32,
    quiet: u32,
    rest: u32,
    /// The last swap, unless it was undone.
    swapped: Option<LastSwap>,
    /// The number of swaps that were undone.
    undone: u32,
}

#[derive(Debug)]
struct LastSwap {
    from: String,
    /// Missed pages in the interval before the swap.
    before: u64,
    /// The number of intervals since the swap, and the missed pages in them.
    beats: u32,
    since: u64,
}

/// An action on a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Attach,
    Detach,
    Swap(String),
}

/// The counters of a cache in an interval.
struct Sample<'a> {
    implementation: &'a str,
    faults: u64,
    /// Accesses, and those that followed another; `None` without a detector.
    detected: Option<(u64, u64)>,
}

impl<'a> Sample<'a> {
    fn of(object: &'a ObjectInfo) -> Self {
        let detector = object.wrappers.iter().find(|wrapper| wrapper.name == DETECTOR);
        let detected = detector.map(|wrapper| {
            let count = |what: &str| wrapper.stats.get(what).copied().unwrap_or(0);
            (count("accesses"), count("following"))
        });
        let faults = object.stats.get("faults").copied().unwrap_or(0);
        Self { implementation: &object.implementation, faults, detected }
    }
}

impl CacheState {
    fn decide(&mut self, sight: &Sample<'_>, request: &Adapt) -> Action {
        let missed = sight.faults.saturating_sub(self.faults);
        self.faults = sight.faults;
        let Some((accesses, following)) = sight.detected else {
            (self.accesses, self.following, self.attached) = (0, 0, false);
            return if missed >= MIN_COUNT { Action::Attach } else { Action::Nothing };
        };
        let new = accesses.saturating_sub(self.accesses);
        let followed = following.saturating_sub(self.following);
        (self.accesses, self.following) = (accesses, following);
        if let Some(back) = self.undo(missed) {
            return back;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return Action::Nothing;
        }
        if new < MIN_COUNT {
            self.quiet += 1;
            let goes = self.attached && self.swapped.is_none() && self.quiet >= MAX_QUIET;
            return if goes { Action::Detach } else { Action::Nothing };
        }
        self.quiet = 0;
        let percent = followed * 100 / new;
        let wants = match &self.swapped {
            None if sight.implementation != SEQUENTIAL && percent >= request.above_percent => {
                Some(SEQUENTIAL.to_owned())
            }
            Some(swapped) if percent < request.below_percent => Some(swapped.from.clone()),
            _ => None,
        };
        let Some(to) = wants else {
            self.votes = 0;
            return Action::Nothing;
        };
        self.votes += 1;
        if self.votes < VOTES_NEEDED {
            return Action::Nothing;
        }
        self.votes = 0;
        self.swapped = match self.swapped {
            Some(_) => None,
            None => {
                let from = sight.implementation.to_owned();
                Some(LastSwap { from, before: missed, beats: 0, since: 0 })
            }
        };
        Action::Swap(to)
    }

    /// Returns the swap back to the former implementation if the cache misses more pages than
    /// before.
    fn undo(&mut self, missed: u64) -> Option<Action> {
        let swapped = self.swapped.as_mut().filter(|swapped| swapped.beats < PROBATION)?;
        swapped.beats += 1;
        swapped.since += missed;
        let worse = swapped.since > 2 * swapped.before.max(MIN_COUNT) * u64::from(PROBATION);
        if swapped.beats < PROBATION || !worse {
            return None;
        }
        let from = self.swapped.take()?.from;
        self.undone += 1;
        self.rest = PROBATION << self.undone.min(10);
        Some(Action::Swap(from))
    }
}

/// Checks the thresholds. A glob that matches nothing is accepted, since objects may come.
///
/// # Errors
///
/// The thresholds contradict each other.
pub(crate) fn check(request: &Adapt) -> Result<(), Refusal> {
    if request.below_percent <= request.above_percent && request.above_percent <= 100 {
        return Ok(());
    }
    let what = format!("adapt {}", request.glob);
    let obstacle = format!(
        "swapping above {} % and back below {} % would never end",
        request.above_percent, request.below_percent
    );
    Err(Refusal::new(Kind::Malformed, what, obstacle, "give 0 ≤ below ≤ above ≤ 100"))
}

impl Work {
    /// Runs until the client disconnects, the time is over, or the instance ends.
    pub(crate) fn run(&self) {
        let mut known: BTreeMap<u64, CacheState> = BTreeMap::new();
        let every = Duration::from_millis(self.request.every_ms.max(1));
        let glob = Glob::new(&self.request.glob);
        // A time beyond the range of the clock means no limit.
        let time = |ms| Instant::now().checked_add(Duration::from_millis(ms));
        let until = self.request.for_ms.and_then(time);
        while !self.over() && until.is_none_or(|until| Instant::now() < until) {
            let next = Instant::now().checked_add(every);
            let objects = self.objects(&glob);
            known.retain(|id, _| objects.iter().any(|object| object.id == *id));
            for object in &objects {
                let known = known.entry(object.id).or_default();
                let act = known.decide(&Sample::of(object), &self.request);
                if self.act(object, known, act).is_err() {
                    break;
                }
            }
            sleep_until(next, POLL_INTERVAL, &|| self.over());
        }
        if !*self.shared.ending.borrow() {
            self.restore(&glob, &known);
        }
    }

    fn over(&self) -> bool {
        self.disconnected.load(Ordering::Relaxed)
            || *self.shared.ending.borrow()
            || self.sender.is_closed()
    }

    /// Returns the caches that a detector fits and that have the sequential implementation.
    fn objects(&self, glob: &Glob) -> Vec<ObjectInfo> {
        let mut objects = self.shared.core.objects(glob);
        objects.retain(|object| {
            INTERFACES.iter().any(|(interface, _)| *interface == object.interface)
                && object.implementations.iter().any(|one| one == SEQUENTIAL)
        });
        objects
    }

    /// Performs an action and sends its report. Returns an error if the client has disconnected.
    fn act(&self, object: &ObjectInfo, known: &mut CacheState, act: Action) -> Result<(), ()> {
        let report = match act {
            Action::Nothing => return Ok(()),
            Action::Attach => {
                let report = self.wrap(object, true);
                known.attached = report.committed();
                report
            }
            Action::Detach => {
                known.attached = false;
                self.wrap(object, false)
            }
            Action::Swap(to) => self.swap(object, &to),
        };
        self.send(report)
    }

    fn wrap(&self, object: &ObjectInfo, attach: bool) -> Report {
        let settings = INTERFACES.iter().find(|(interface, _)| *interface == object.interface);
        let settings = settings.map_or(&[][..], |(_, settings)| settings);
        let text = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let act = match attach {
            true => WrapAct::Attach {
                wrapper: DETECTOR.to_owned(),
                settings: settings.iter().map(text).collect(),
            },
            false => WrapAct::Detach { wrapper: Some(DETECTOR.to_owned()) },
        };
        let (core, owner) = (&self.shared.core, self.owner.clone());
        let change = core.journal.next_id();
        let request = WrapRequest { object: object.id, act, change, owner };
        recording::changing(change, || core.system.wrap(&request))
    }

    fn swap(&self, object: &ObjectInfo, to: &str) -> Report {
        let core = &self.shared.core;
        let request = SwapRequest {
            objects: vec![(object.id, to.to_owned())],
            clustering: Clustering::AsMade,
            probation: None,
            retries: 0,
            change: core.journal.next_id(),
            deadline: None,
            dry_run: false,
            protocol: None,
            handover: Handover::Transfer,
            // Not cancelled when the client disconnects, since this may be the swap back.
            cancel: Arc::default(),
            owner: self.owner.clone(),
        };
        recording::changing(request.change, || core.system.swap(&request))
    }

    fn send(&self, report: Report) -> Result<(), ()> {
        if report.target_gone {
            return Ok(());
        }
        self.shared.core.ended(report.clone());
        self.sender.blocking_send(report).map_err(drop)
    }

    /// Removes the detectors and restores the implementations of the caches. Reports are sent as
    /// long as the client is connected.
    fn restore(&self, glob: &Glob, known: &BTreeMap<u64, CacheState>) {
        for object in self.objects(glob) {
            let Some(known) = known.get(&object.id) else { continue };
            if let Some(LastSwap { from, .. }) = &known.swapped {
                let _ = self.send(self.swap(&object, from));
            }
            if known.attached {
                let _ = self.send(self.wrap(&object, false));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Adapt = Adapt {
        glob: String::new(),
        every_ms: 100,
        above_percent: 90,
        below_percent: 50,
        for_ms: None,
    };

    /// Passes the same counts to a cache for a number of intervals: accesses, accesses that follow
    /// another, and missed pages.
    fn beats(
        known: &mut CacheState,
        serves: &str,
        count: u32,
        each: (u64, u64, u64),
    ) -> Vec<Action> {
        let acts = (0..count).map(|_| {
            let (accesses, following) = (known.accesses + each.0, known.following + each.1);
            let detected = Some((accesses, following));
            let faults = known.faults + each.2;
            known.decide(&Sample { implementation: serves, faults, detected }, &ASKED)
        });
        acts.filter(|act| *act != Action::Nothing).collect()
    }

    #[test]
    fn a_cache_gets_a_detector_when_pages_are_missed_and_loses_it_when_nothing_happens() {
        let mut known = CacheState::default();
        let sight = |faults| Sample { implementation: "shared", faults, detected: None };
        assert_eq!(known.decide(&sight(MIN_COUNT - 1), &ASKED), Action::Nothing);
        assert_eq!(known.decide(&sight(3 * MIN_COUNT), &ASKED), Action::Attach);
        known.attached = true;
        assert_eq!(beats(&mut known, "shared", MAX_QUIET - 1, (MIN_COUNT - 1, 0, 0)), []);
        assert_eq!(beats(&mut known, "shared", 1, (0, 0, 0)), [Action::Detach]);
    }

    #[test]
    fn it_is_swapped_there_and_back_with_its_use_and_not_by_what_lies_between() {
        let mut known = CacheState { attached: true, ..CacheState::default() };
        assert_eq!(beats(&mut known, "shared", 20, (100, 89, 100)), []);
        let there = beats(&mut known, "shared", VOTES_NEEDED, (100, 95, 100));
        assert_eq!(there, [Action::Swap("sequential".into())]);
        assert_eq!(beats(&mut known, "sequential", 20, (100, 60, 100)), []);
        assert_eq!(beats(&mut known, "sequential", 1, (100, 10, 100)), []);
        assert_eq!(beats(&mut known, "sequential", 1, (100, 99, 100)), [], "one beat is none");
        let back = beats(&mut known, "sequential", VOTES_NEEDED, (100, 10, 100));
        assert_eq!(back, [Action::Swap("shared".into())]);
    }

    #[test]
    fn what_does_worse_is_undone_and_left_alone_for_longer_each_time() {
        let mut known = CacheState { attached: true, ..CacheState::default() };
        let mut pauses = Vec::new();
        for _ in 0..3 {
            assert_eq!(beats(&mut known, "shared", VOTES_NEEDED, (100, 99, 50)).len(), 1);
            let undone = beats(&mut known, "sequential", PROBATION, (500, 495, 500));
            assert_eq!(undone, [Action::Swap("shared".into())]);
            pauses.push(known.rest);
            let rest = known.rest;
            assert_eq!(beats(&mut known, "shared", rest, (100, 99, 50)), []);
        }
        assert_eq!(pauses, [2 * PROBATION, 4 * PROBATION, 8 * PROBATION]);
    }

    #[test]
    fn thresholds_that_never_rest_are_refused() {
        assert!(check(&ASKED).is_ok());
        assert!(check(&Adapt { below_percent: 95, ..ASKED }).is_err());
        assert!(check(&Adapt { above_percent: 101, ..ASKED }).is_err());
    }
}
