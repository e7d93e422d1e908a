//! Swaps of caches according to their use (Soules 2003, §6.3): adaptive page replacement, and
//! single and replicated caches.
//!
//! Each request runs a loop for as long as the client is connected. At each interval the loop
//! examines all matching caches by each of the [rules](RULES):
//!
//! 1. *Measure.* A cache with work gets the rule's detector, a wrapper. A cache that has long been
//!    unused loses it.
//! 2. *Decide.* The share of calls since the last interval that are of the rule's kind (that follow
//!    one another, that began while another was inside) is compared with two thresholds. A cache is
//!    swapped when the share is at least the upper one, or below the lower one, for two consecutive
//!    intervals. A share in between changes nothing.
//! 3. *Change.* The cache is swapped to the rule's implementation, or back to its former one.
//! 4. *Check, undo.* If the cache does worse after the swap than before, it is swapped back and
//!    left alone for a period that doubles each time.
//!
//! At the end the detectors are removed, and the caches get their former implementations.

mod cache_state;
mod rules;

use std::collections::{BTreeMap, HashSet};
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
use cache_state::{Action, CacheState};
use rules::{RULES, Rule, Thresholds};

/// The longest sleep before the thread checks again whether the client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The minimum length of an interval, in times of what its examination takes. With many caches the
/// intervals become longer, so that the examination takes little time from the programs.
const PAUSE: u32 = 50;

/// A request in progress.
pub(crate) struct Work {
    pub(crate) shared: Shared,
    pub(crate) request: Adapt,
    pub(crate) owner: String,
    /// Becomes true when the client has disconnected.
    pub(crate) disconnected: Arc<AtomicBool>,
    pub(crate) sender: Sender<Report>,
}

/// Checks the thresholds. A glob that matches nothing is accepted, since objects may come.
///
/// # Errors
///
/// The thresholds contradict each other.
pub(crate) fn check(request: &Adapt) -> Result<(), Refusal> {
    for rule in &RULES {
        let Thresholds { above, below } = rule.thresholds(request);
        if below > above || above > 100 {
            let what = format!("adapt {}", request.glob);
            let obstacle =
                format!("swapping above {above} % and back below {below} % would never end");
            let advice = "give 0 ≤ below ≤ above ≤ 100";
            return Err(Refusal::new(Kind::Malformed, what, obstacle, advice));
        }
    }
    Ok(())
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
            let began = Instant::now();
            let objects = self.objects(&glob);
            let there: HashSet<u64> = objects.iter().map(|object| object.id).collect();
            known.retain(|id, _| there.contains(id));
            for object in &objects {
                let known = known.entry(object.id).or_default();
                let counts = RULES
                    .each_ref()
                    .map(|rule| rule.applies_to(object).then(|| rule.counts(object)));
                let actions = known.decide(&object.implementation, &counts, &self.request);
                if actions.into_iter().any(|action| self.act(object, known, action).is_err()) {
                    break;
                }
            }
            let interval = every.max(began.elapsed().saturating_mul(PAUSE));
            sleep_until(began.checked_add(interval), POLL_INTERVAL, &|| self.over());
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

    /// Returns the caches that a rule applies to.
    fn objects(&self, glob: &Glob) -> Vec<ObjectInfo> {
        let mut objects = self.shared.core.objects(glob);
        objects.retain(|object| RULES.iter().any(|rule| rule.applies_to(object)));
        objects
    }

    /// Performs an action and sends its report. Returns an error if the client has disconnected.
    fn act(&self, object: &ObjectInfo, known: &mut CacheState, action: Action) -> Result<(), ()> {
        let report = match action {
            Action::Attach(rule) => {
                let report = self.wrap(object, &RULES[rule], true);
                known.attached(rule, report.committed());
                report
            }
            Action::Detach(rule) => {
                known.attached(rule, false);
                self.wrap(object, &RULES[rule], false)
            }
            Action::Swap(to) => self.swap(object, &to),
        };
        self.send(report)
    }

    fn wrap(&self, object: &ObjectInfo, rule: &Rule, attach: bool) -> Report {
        let wrapper = rule.detector.to_owned();
        let act = match attach {
            true => WrapAct::Attach { wrapper, settings: rule.settings(object) },
            false => WrapAct::Detach { wrapper: Some(wrapper) },
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
            if let Some(former) = known.former() {
                let _ = self.send(self.swap(&object, former));
            }
            for rule in known.detectors() {
                let _ = self.send(self.wrap(&object, rule, false));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rules::ASKED;
    use super::*;

    #[test]
    fn thresholds_that_never_rest_are_refused() {
        assert!(check(&ASKED).is_ok());
        assert!(check(&Adapt { below_percent: 95, ..ASKED }).is_err());
        assert!(check(&Adapt { above_percent: 101, ..ASKED }).is_err());
        assert!(check(&Adapt { overlapping_below_percent: 21, ..ASKED }).is_err());
    }
}
