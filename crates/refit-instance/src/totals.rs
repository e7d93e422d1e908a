//! Counts that outlive the counted objects: the sums of all counters, and the durations of changes.

use std::collections::{BTreeMap, HashMap};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use refit_change::Report;

/// Labels and their values, in order.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// The sums of all counters over everything that has existed.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    sums: BTreeMap<(&'static str, Labels), f64>,
    /// The value of each counter at the last request.
    seen: HashMap<(&'static str, u64, Labels), f64>,
    /// The value of each counter in the request in progress.
    seeing: HashMap<(&'static str, u64, Labels), f64>,
}

impl Totals {
    /// Adds the difference between the value `now` of a counter and its value at the last request.
    /// A value that is less than before has started again at zero.
    pub(crate) fn take(&mut self, name: &'static str, who: u64, labels: &Labels, now: f64) {
        let key = (name, who, labels.clone());
        let before = self.seen.get(&key).copied().unwrap_or(0.0);
        *self.sums.entry((name, labels.clone())).or_default() +=
            if now < before { now } else { now - before };
        self.seeing.insert(key, now);
    }

    /// Drops the counters that this request has not seen, whose owners have ended.
    pub(crate) fn end_reading(&mut self) {
        self.seen = std::mem::take(&mut self.seeing);
    }

    pub(crate) fn of(&self, name: &str) -> impl Iterator<Item = (&Labels, f64)> {
        self.sums
            .iter()
            .filter(move |((of, _), _)| *of == name)
            .map(|((_, labels), n)| (labels, *n))
    }
}

/// The durations of changes, by mechanism and end.
#[derive(Clone, Debug)]
pub(crate) struct ChangeTimes(pub(crate) Family<Labels, Histogram, fn() -> Histogram>);

impl Default for ChangeTimes {
    fn default() -> Self {
        // The buckets begin at a microsecond and grow by a factor of four; the last one is 17 s.
        ChangeTimes(Family::new_with_constructor(|| {
            Histogram::new(exponential_buckets(1e-6, 4.0, 13))
        }))
    }
}

impl ChangeTimes {
    pub(crate) fn observe(&self, report: &Report) {
        let labels = vec![
            ("mechanism", report.change.mechanism.clone()),
            ("end", report.end.word().to_owned()),
        ];
        self.0.get_or_create(&labels).observe(report.total_ns() as f64 / 1e9);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_grow_although_those_who_count_come_and_go() {
        let labels = vec![("interface", "fcm".to_owned())];
        let mut totals = Totals::default();
        let mut read = |all: &[(u64, f64)]| {
            all.iter().for_each(|(who, n)| totals.take("calls", *who, &labels, *n));
            totals.end_reading();
            totals.of("calls").map(|(_, n)| n).sum::<f64>()
        };
        assert_eq!(read(&[(1, 5.0), (2, 7.0)]), 12.0);
        assert_eq!(read(&[(1, 6.0)]), 13.0, "what 2 has counted stays");
        assert_eq!(read(&[(1, 2.0)]), 15.0, "1 began at zero again");
        assert_eq!(read(&[]), 15.0);
        assert_eq!(read(&[(1, 2.0)]), 17.0, "a new 1");
    }
}
