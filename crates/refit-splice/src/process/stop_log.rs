//! The stops of a program.

use std::time::Duration;

use parking_lot::Mutex;

/// The durations of all stops of a program so far.
#[derive(Debug, Default)]
pub(super) struct StopLog(Mutex<Vec<Duration>>);

/// The number of stops of a program, and how long they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Number of stops.
    pub count: usize,
    /// The median of their durations; 0 if there are none.
    pub median: Duration,
    /// The duration of the longest; 0 if there are none.
    pub longest: Duration,
}

impl StopLog {
    pub(super) fn add(&self, duration: Duration) {
        self.0.lock().push(duration);
    }

    pub(super) fn sum_up(&self) -> Stops {
        let mut durations = self.0.lock().clone();
        durations.sort_unstable();
        let at = |index: usize| durations.get(index).copied().unwrap_or_default();
        let count = durations.len();
        Stops { count, median: at(count / 2), longest: at(count.saturating_sub(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_durations_in_order() {
        let log = StopLog::default();
        assert_eq!(log.sum_up(), Stops::default());
        for nanos in [5, 1, 9] {
            log.add(Duration::from_nanos(nanos));
        }
        let [median, longest] = [5, 9].map(Duration::from_nanos);
        assert_eq!(log.sum_up(), Stops { count: 3, median, longest });
    }
}
