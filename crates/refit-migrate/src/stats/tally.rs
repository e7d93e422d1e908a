//! Counts of the threads that run in a node's replicas.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The number of times that something was done, and the time that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The number of times.
    pub count: u64,
    /// The sum of the times, in nanoseconds.
    pub total_ns: u64,
    /// The shortest, in nanoseconds.
    pub least_ns: u64,
    /// The longest, in nanoseconds.
    pub most_ns: u64,
}

impl Times {
    /// Adds the time from `began` until now.
    pub(crate) fn since(&mut self, began: Instant) {
        self.took(began.elapsed());
    }

    /// Adds a time.
    pub(crate) fn took(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.add(&Self { count: 1, total_ns: ns, least_ns: ns, most_ns: ns });
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.least_ns =
            if self.count == 0 { other.least_ns } else { self.least_ns.min(other.least_ns) };
        self.most_ns = self.most_ns.max(other.most_ns);
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }
}

/// The counts of one node on a program's threads that run there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// System calls that shadows have made, by number; from the stop of the thread to the result.
    pub calls: BTreeMap<u32, Times>,
    /// System calls on files that were made at the node, by number.
    pub files: BTreeMap<u32, Times>,
    /// The number of system calls that needed neither.
    pub local: u64,
    /// System calls that change the memory, which the coordinator makes, or has made.
    pub changes: Times,
    /// Accesses to unmapped addresses; from the stop to the mapping.
    pub faults: Times,
    /// Lookups; until the answer.
    pub asks: Times,
    /// The number of answers that were too old when they came, since something had been invalidated
    /// meanwhile.
    pub retries: u64,
    /// The number of lookups that other nodes than the origin have answered.
    pub by_members: u64,
    /// The number of mappings that were made unasked beside one.
    pub fault_around: u64,
    /// The number of messages that lookups took.
    pub messages: u64,
    /// Pages that moved to the node; from the fault to the page.
    pub pages: Times,
    /// Waits for the lock on the memory, where nodes agree on it.
    pub locks: Times,
    /// The number of messages that these took.
    pub lock_messages: u64,
}

/// No kernel has a call with so high a number, but a program may ask for any.
pub(super) const CALLS: u64 = 1024;

impl Tally {
    /// Counts a call that a shadow has made.
    pub(crate) fn count_call(&mut self, number: u64, began: Instant) {
        let number = u32::try_from(number.min(CALLS)).unwrap_or_default();
        self.calls.entry(number).or_default().since(began);
    }

    /// Counts a call on a file that was made where the thread runs.
    pub(crate) fn count_file_call(&mut self, number: u64, began: Instant) {
        let number = u32::try_from(number.min(CALLS)).unwrap_or_default();
        self.files.entry(number).or_default().since(began);
    }

    /// Counts a lookup.
    pub(crate) fn count_lookup(&mut self, began: Instant, messages: u64) {
        self.asks.since(began);
        self.messages += messages;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (number, times) in &other.calls {
            self.calls.entry(*number).or_default().add(times);
        }
        for (number, times) in &other.files {
            self.files.entry(*number).or_default().add(times);
        }
        self.local += other.local;
        self.changes.add(&other.changes);
        self.faults.add(&other.faults);
        self.asks.add(&other.asks);
        self.retries += other.retries;
        self.by_members += other.by_members;
        self.fault_around += other.fault_around;
        self.messages += other.messages;
        self.pages.add(&other.pages);
        self.locks.add(&other.locks);
        self.lock_messages += other.lock_messages;
    }
}
