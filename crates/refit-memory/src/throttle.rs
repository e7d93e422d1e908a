//! A rate limit for the recording of events that a shortage can cause thousands of times a second.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The shortest time between two records, in milliseconds.
const INTERVAL: u64 = 1_000;

/// Limits one kind of event.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// When one may be recorded again, in milliseconds since the first use of any throttle.
    due: AtomicU64,
    /// The number of occurrences since the last one that was recorded.
    occurrences: AtomicU64,
}

impl Throttle {
    pub(crate) const fn new() -> Self {
        Self { due: AtomicU64::new(0), occurrences: AtomicU64::new(0) }
    }

    /// Counts an occurrence. If it should be recorded, returns the number of occurrences since the
    /// last recorded one, including this one.
    pub(crate) fn count(&self) -> Option<u64> {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        let now = BEGIN.get_or_init(Instant::now).elapsed().as_millis() as u64;
        self.count_at(now)
    }

    /// As `count`, at this time in milliseconds.
    fn count_at(&self, now: u64) -> Option<u64> {
        // Relaxed throughout: nothing depends on which thread records.
        let occurrences = self.occurrences.fetch_add(1, Relaxed) + 1;
        let due = self.due.load(Relaxed);
        let records =
            now >= due && self.due.compare_exchange(due, now + INTERVAL, Relaxed, Relaxed).is_ok();
        if !records {
            return None;
        }
        self.occurrences.fetch_sub(occurrences, Relaxed);
        Some(occurrences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_second_is_recorded_and_says_how_many_were_not() {
        let throttle = Throttle::new();
        let counts = [0, 1, INTERVAL - 1, INTERVAL, INTERVAL + 1, 5 * INTERVAL];
        let recorded = counts.map(|now| throttle.count_at(now));
        assert_eq!(recorded, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
