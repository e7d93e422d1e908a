//! Caches are swapped by how they are used: adaptive page replacement (Soules 2003, §6.3).
//!
//! Who asks for it gets a loop for as long as they listen. At each beat it looks at all caches that match:
//!
//! 1. *Measure.* A cache that pages are missed in gets a detector, the wrapper `sequential`; one that has been quiet for long loses it.
//! 2. *Decide.* So much of the accesses since the last beat follow each other: for two beats in a row more than `above`, or less than
//!    `below`. What lies between changes nothing.
//! 3. *Change.* The cache is swapped to `sequential`, or back to what it was.
//! 4. *Check, undo.* If more than twice as many pages are missed afterwards as before, it is swapped back, and left alone for a
//!    time that doubles.
//!
//! In the end detectors go, and caches are what they were.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refit_change::Report;
use refit_objects::pace::sleep_until;
use refit_objects::{Clustering, Handover};
use tokio::sync::mpsc::Sender;

use crate::glob::Glob;
use crate::recording;
use crate::refusal::{Kind, Refusal};
use crate::server::Shared;
use crate::system::{SwapRequest, WrapAct, WrapRequest};
use crate::wire::{Adapt, ObjectInfo};

/// The wrapper that tells sequential accesses from others, and what it has to be told of each interface.
const DETECTOR: &str = "sequential";
const INTERFACES: [(&str, &[(&str, &str)]); 2] = [
    ("anonymous", &[("method", "lend"), ("offset", "page"), ("unit", "4096")]),
    ("fcm", &[("method", "read")]),
];
/// What sequential accesses are best served by.
const SEQUENTIAL: &str = "sequential";
/// Fewer accesses, or missed pages, in a beat tell nothing.
const FEW: u64 = 32;
/// Beats in a row that have to agree.
const AGREE: u32 = 2;
/// Beats without accesses after which a detector goes.
const QUIET: u32 = 50;
/// Beats after a swap in which it has to prove itself, and for which a cache is left alone at first if it does not.
const PROBATION: u32 = 5;
/// How long a pause goes on without a look whether anybody still listens.
const LOOK: Duration = Duration::from_millis(20);

/// A request under way.
pub(crate) struct Work {
    pub(crate) shared: Shared,
    pub(crate) asked: Adapt,
    pub(crate) owner: String,
    /// Becomes true when the requester has gone.
    pub(crate) gone: Arc<AtomicBool>,
    pub(crate) sender: Sender<Report>,
}

/// What is known of a cache.
#[derive(Debug, Default)]
struct Known {
    /// Counters at the last beat: pages missed, accesses, and those that followed others.
    faults: u64,
    accesses: u64,
    following: u64,
    /// Whether the detector is ours.
    ours: bool,
    /// Beats in a row that were for a change; beats without accesses; beats until it is looked at again.
    votes: u32,
    quiet: u32,
    rest: u32,
    /// If it was swapped: from what, and how it does since.
    swapped: Option<Swapped>,
    /// Swaps that had to be undone.
    regrets: u32,
}

#[derive(Debug)]
struct Swapped {
    from: String,
    /// Pages missed in the beat before.
    before: u64,
    /// Beats since, and pages missed in them.
    beats: u32,
    since: u64,
}

/// What is to be done about a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    Attach,
    Detach,
    Swap(String),
}

/// A cache as it is at a beat.
struct Sight<'a> {
    implementation: &'a str,
    faults: u64,
    /// Accesses, and those that followed others; `None`: nobody counts them.
    detected: Option<(u64, u64)>,
}

impl<'a> Sight<'a> {
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

impl Known {
    fn decide(&mut self, sight: &Sight<'_>, asked: &Adapt) -> Act {
        let missed = sight.faults.saturating_sub(self.faults);
        self.faults = sight.faults;
        let Some((accesses, following)) = sight.detected else {
            (self.accesses, self.following, self.ours) = (0, 0, false);
            return if missed >= FEW { Act::Attach } else { Act::Nothing };
        };
        let new = accesses.saturating_sub(self.accesses);
        let followed = following.saturating_sub(self.following);
        (self.accesses, self.following) = (accesses, following);
        if let Some(back) = self.regret(missed) {
            return back;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return Act::Nothing;
        }
        if new < FEW {
            self.quiet += 1;
            let goes = self.ours && self.swapped.is_none() && self.quiet >= QUIET;
            return if goes { Act::Detach } else { Act::Nothing };
        }
        self.quiet = 0;
        let percent = followed * 100 / new;
        let wants = match &self.swapped {
            None if sight.implementation != SEQUENTIAL && percent >= asked.above_percent => {
                Some(SEQUENTIAL.to_owned())
            }
            Some(swapped) if percent < asked.below_percent => Some(swapped.from.clone()),
            _ => None,
        };
        let Some(to) = wants else {
            self.votes = 0;
            return Act::Nothing;
        };
        self.votes += 1;
        if self.votes < AGREE {
            return Act::Nothing;
        }
        self.votes = 0;
        self.swapped = match self.swapped {
            Some(_) => None,
            None => {
                let from = sight.implementation.to_owned();
                Some(Swapped { from, before: missed, beats: 0, since: 0 })
            }
        };
        Act::Swap(to)
    }

    /// Back, if it has done worse since.
    fn regret(&mut self, missed: u64) -> Option<Act> {
        let swapped = self.swapped.as_mut().filter(|swapped| swapped.beats < PROBATION)?;
        swapped.beats += 1;
        swapped.since += missed;
        let worse = swapped.since > 2 * swapped.before.max(FEW) * u64::from(PROBATION);
        if swapped.beats < PROBATION || !worse {
            return None;
        }
        let from = self.swapped.take()?.from;
        self.regrets += 1;
        self.rest = PROBATION << self.regrets.min(10);
        Some(Act::Swap(from))
    }
}

/// Whether it makes sense.
///
/// # Errors
/// The thresholds make no sense. That nothing matches is none: it can come.
pub(crate) fn check(asked: &Adapt) -> Result<(), Refusal> {
    if asked.below_percent <= asked.above_percent && asked.above_percent <= 100 {
        return Ok(());
    }
    let what = format!("adapt {}", asked.glob);
    let obstacle = format!(
        "swapping above {} % and back below {} % would never end",
        asked.above_percent, asked.below_percent
    );
    Err(Refusal::new(Kind::Malformed, what, obstacle, "say 0 ≤ below ≤ above ≤ 100"))
}

impl Work {
    /// Until nobody listens any more, or the instance ends.
    pub(crate) fn run(&self) {
        let mut known: BTreeMap<u64, Known> = BTreeMap::new();
        let every = Duration::from_millis(self.asked.every_ms.max(1));
        let glob = Glob::new(&self.asked.glob);
        // A time beyond what clocks count is for ever.
        let time = |ms| Instant::now().checked_add(Duration::from_millis(ms));
        let until = self.asked.for_ms.and_then(time);
        while !self.over() && until.is_none_or(|until| Instant::now() < until) {
            let next = Instant::now().checked_add(every);
            let objects = self.objects(&glob);
            known.retain(|id, _| objects.iter().any(|object| object.id == *id));
            for object in &objects {
                let known = known.entry(object.id).or_default();
                let act = known.decide(&Sight::of(object), &self.asked);
                if self.act(object, known, act).is_err() {
                    break;
                }
            }
            sleep_until(next, LOOK, &|| self.over());
        }
        if !*self.shared.ending.borrow() {
            self.put_back(&glob, &known);
        }
    }

    fn over(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || *self.shared.ending.borrow() || self.sender.is_closed()
    }

    /// Caches that can be told about, and can serve sequential accesses.
    fn objects(&self, glob: &Glob) -> Vec<ObjectInfo> {
        let mut objects = self.shared.core.objects(glob);
        objects.retain(|object| {
            INTERFACES.iter().any(|(interface, _)| *interface == object.interface)
                && object.implementations.iter().any(|one| one == SEQUENTIAL)
        });
        objects
    }

    /// Nobody listens: nothing more is to be done.
    fn act(&self, object: &ObjectInfo, known: &mut Known, act: Act) -> Result<(), ()> {
        let report = match act {
            Act::Nothing => return Ok(()),
            Act::Attach => {
                let report = self.wrap(object, true);
                known.ours = report.committed();
                report
            }
            Act::Detach => {
                known.ours = false;
                self.wrap(object, false)
            }
            Act::Swap(to) => self.swap(object, &to),
        };
        self.tell(report)
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
            // Also when nobody listens any more: it may be the way back.
            cancel: Arc::default(),
            owner: self.owner.clone(),
        };
        recording::changing(request.change, || core.system.swap(&request))
    }

    fn tell(&self, report: Report) -> Result<(), ()> {
        if report.target_gone {
            return Ok(());
        }
        self.shared.core.ended(report.clone());
        self.sender.blocking_send(report).map_err(drop)
    }

    /// Detectors go, and caches are what they were. Whoever listens still, hears of it.
    fn put_back(&self, glob: &Glob, known: &BTreeMap<u64, Known>) {
        for object in self.objects(glob) {
            let Some(known) = known.get(&object.id) else { continue };
            if let Some(Swapped { from, .. }) = &known.swapped {
                let _ = self.tell(self.swap(&object, from));
            }
            if known.ours {
                let _ = self.tell(self.wrap(&object, false));
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

    /// A cache that is used for so many beats: accesses in each, how many of them follow, pages missed.
    fn beats(known: &mut Known, serves: &str, count: u32, each: (u64, u64, u64)) -> Vec<Act> {
        let acts = (0..count).map(|_| {
            let (accesses, following) = (known.accesses + each.0, known.following + each.1);
            let detected = Some((accesses, following));
            let faults = known.faults + each.2;
            known.decide(&Sight { implementation: serves, faults, detected }, &ASKED)
        });
        acts.filter(|act| *act != Act::Nothing).collect()
    }

    #[test]
    fn a_cache_gets_a_detector_when_pages_are_missed_and_loses_it_when_nothing_happens() {
        let mut known = Known::default();
        let sight = |faults| Sight { implementation: "shared", faults, detected: None };
        assert_eq!(known.decide(&sight(FEW - 1), &ASKED), Act::Nothing);
        assert_eq!(known.decide(&sight(3 * FEW), &ASKED), Act::Attach);
        known.ours = true;
        assert_eq!(beats(&mut known, "shared", QUIET - 1, (FEW - 1, 0, 0)), []);
        assert_eq!(beats(&mut known, "shared", 1, (0, 0, 0)), [Act::Detach]);
    }

    #[test]
    fn it_is_swapped_there_and_back_with_its_use_and_not_by_what_lies_between() {
        let mut known = Known { ours: true, ..Known::default() };
        assert_eq!(beats(&mut known, "shared", 20, (100, 89, 100)), []);
        let there = beats(&mut known, "shared", AGREE, (100, 95, 100));
        assert_eq!(there, [Act::Swap("sequential".into())]);
        assert_eq!(beats(&mut known, "sequential", 20, (100, 60, 100)), []);
        assert_eq!(beats(&mut known, "sequential", 1, (100, 10, 100)), []);
        assert_eq!(beats(&mut known, "sequential", 1, (100, 99, 100)), [], "one beat is none");
        let back = beats(&mut known, "sequential", AGREE, (100, 10, 100));
        assert_eq!(back, [Act::Swap("shared".into())]);
    }

    #[test]
    fn what_does_worse_is_undone_and_left_alone_for_longer_each_time() {
        let mut known = Known { ours: true, ..Known::default() };
        let mut pauses = Vec::new();
        for _ in 0..3 {
            assert_eq!(beats(&mut known, "shared", AGREE, (100, 99, 50)).len(), 1);
            let undone = beats(&mut known, "sequential", PROBATION, (500, 495, 500));
            assert_eq!(undone, [Act::Swap("shared".into())]);
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
