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

/// A counter that adds up.
trait Sum {
    /// Adds the counts of another node, or time.
    fn sum(&mut self, other: &Self);
}

impl Sum for u64 {
    fn sum(&mut self, other: &Self) {
        *self += other;
    }
}

impl Sum for Times {
    fn sum(&mut self, other: &Self) {
        self.add(other);
    }
}

macro_rules! declare_tally {
    ($($(#[$doc:meta])* $name:ident: $kind:ident $(, $alias:meta)?;)*) => {
        /// The counts of one node on a program's threads that run there.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Tally {
            /// System calls that shadows have made, by number; from the stop of the thread to the
            /// result.
            pub calls: BTreeMap<u32, Times>,
            /// System calls on files that were made at the node, by number.
            pub files: BTreeMap<u32, Times>,
            $($(#[$doc])* pub $name: $kind,)*
        }

        impl Tally {
            /// Adds all counts but those of each system call.
            fn add_counters(&mut self, other: &Self) {
                $(self.$name.sum(&other.$name);)*
            }
        }
    };
}

destination_counters!(declare_tally, Times);

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
        self.add_counters(other);
    }
}
