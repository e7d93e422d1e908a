//! The ways to use a cache that have an implementation of their own.

use crate::wire::{Adapt, ObjectInfo};

/// A way to use a cache: how it is detected, and the implementation that serves it best.
#[derive(Debug)]
pub(super) struct Rule {
    /// The wrapper that detects it.
    pub(super) detector: &'static str,
    /// The names of its counters: calls, and those of this kind.
    counters: [&'static str; 2],
    /// The interfaces of the caches.
    interfaces: &'static [Interface],
    pub(super) implementation: &'static str,
    /// Returns whether a cache does worse than before a swap, from [`Interface::work`] in the
    /// interval before the swap and on average since then.
    pub(super) is_worse: fn(before: u64, since: u64) -> bool,
    thresholds: fn(&Adapt) -> Thresholds,
}

#[derive(Debug)]
struct Interface {
    name: &'static str,
    /// The settings of the detector.
    settings: &'static [(&'static str, &'static str)],
    /// The counter of the cache by which it needs the detector.
    work: &'static str,
}

/// The shares of calls, in percent, by which a cache is swapped, and swapped back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    pub(super) above: u64,
    pub(super) below: u64,
}

/// The minimum number of calls, or of [`Interface::work`], in an interval from which a decision is
/// made.
pub(super) const MIN_COUNT: u64 = 32;

/// A request with the default thresholds.
#[cfg(test)]
pub(super) const ASKED: Adapt = Adapt {
    glob: String::new(),
    every_ms: 100,
    above_percent: 90,
    below_percent: 50,
    overlapping_above_percent: 20,
    overlapping_below_percent: 5,
    for_ms: None,
};

/// The indices of the rules for sequential and for concurrent calls.
#[cfg(test)]
pub(super) const SEQUENCE: usize = 0;
#[cfg(test)]
pub(super) const CONCURRENCY: usize = 1;

/// The rules; if several of them apply to a cache, the first decides.
pub(super) const RULES: [Rule; 2] = [
    Rule {
        detector: "sequential",
        counters: ["accesses", "following"],
        interfaces: &[
            Interface {
                name: "anonymous",
                settings: &[("method", "lend"), ("offset", "page"), ("unit", "4096")],
                work: "faults",
            },
            Interface { name: "fcm", settings: &[("method", "read")], work: "faults" },
        ],
        implementation: "sequential",
        is_worse: |missed, since| since > 2 * missed.max(MIN_COUNT),
        thresholds: |asked| Thresholds { above: asked.above_percent, below: asked.below_percent },
    },
    Rule {
        detector: "concurrency",
        counters: ["calls", "overlapping"],
        interfaces: &[
            Interface { name: "anonymous", settings: &[("method", "lend")], work: "faults" },
            Interface { name: "fcm", settings: &[], work: "calls" },
        ],
        implementation: "partitioned",
        is_worse: |served, since| since < served / 2,
        thresholds: |asked| Thresholds {
            above: asked.overlapping_above_percent,
            below: asked.overlapping_below_percent,
        },
    },
];

/// The counters of a cache that a rule decides by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// See [`Interface::work`].
    pub(super) work: u64,
    /// Calls, and those of the rule's kind; `None` without a detector.
    pub(super) detected: Option<(u64, u64)>,
}

impl Rule {
    /// Returns whether the rule can change a cache.
    pub(super) fn applies_to(&self, object: &ObjectInfo) -> bool {
        self.interface(object).is_some()
            && object.implementations.iter().any(|one| one == self.implementation)
    }

    fn interface(&self, object: &ObjectInfo) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == object.interface)
    }

    pub(super) fn settings(&self, object: &ObjectInfo) -> Vec<(String, String)> {
        let settings = self.interface(object).map_or(&[][..], |interface| interface.settings);
        settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    pub(super) fn thresholds(&self, request: &Adapt) -> Thresholds {
        (self.thresholds)(request)
    }

    /// Returns the counters of a cache.
    pub(super) fn counts(&self, object: &ObjectInfo) -> Counts {
        let detector = object.wrappers.iter().find(|wrapper| wrapper.name == self.detector);
        let detected = detector.map(|wrapper| {
            let [all, of_kind] = self.counters.map(|counter| wrapper.stats.get(counter));
            (all.copied().unwrap_or(0), of_kind.copied().unwrap_or(0))
        });
        let work = self.interface(object).and_then(|it| object.stats.get(it.work)).copied();
        Counts { work: work.unwrap_or(0), detected }
    }
}
