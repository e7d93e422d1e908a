//! Times as a picture: how many changes took how long.
//!
//! Buckets double from one to the next, since times of changes spread over orders of magnitude: a
//! median of some microseconds with a tail of milliseconds must both be seen.

use hdrhistogram::Histogram;

use crate::format;

/// The widest bar, in characters.
const BAR: u64 = 40;

/// Times of changes, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Times {
    exact: Histogram<u64>,
    buckets: [u64; 64],
}

impl Times {
    pub(crate) fn new() -> Self {
        // Three significant digits are always a valid choice; the range grows by itself.
        let exact = Histogram::new(3).unwrap_or_else(|_| unreachable!("3 digits are valid"));
        Times { exact, buckets: [0; 64] }
    }

    /// Adds one.
    pub(crate) fn add(&mut self, ns: u64) {
        let ns = ns.max(1);
        // Cannot fail: the range grows.
        let _ = self.exact.record(ns);
        self.buckets[ns.ilog2() as usize] += 1;
    }

    /// The time that the given share (0 to 1) did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        self.exact.value_at_quantile(share)
    }

    /// The longest.
    pub(crate) fn max(&self) -> u64 {
        self.exact.max()
    }

    /// `median 14.2 µs, 99 % 41.0 µs, longest 132 µs`.
    pub(crate) fn summary(&self) -> String {
        format!(
            "median {}, 99 % {}, longest {}",
            format::nanos(self.quantile(0.5)),
            format::nanos(self.quantile(0.99)),
            format::nanos(self.max())
        )
    }

    /// A line per bucket from the first that is not empty to the last.
    pub(crate) fn lines(&self) -> Vec<String> {
        bars(&self.buckets, |i| format::nanos(1 << i))
    }
}

/// A line per bucket from the first that is not empty to the last; `from` says where a bucket
/// begins.
pub(crate) fn bars(buckets: &[u64], from: impl Fn(usize) -> String) -> Vec<String> {
    let Some(first) = buckets.iter().position(|n| *n > 0) else { return Vec::new() };
    let last = buckets.iter().rposition(|n| *n > 0).unwrap_or(first);
    let most = buckets.iter().max().copied().unwrap_or(1);
    (first..=last)
        .map(|i| {
            let n = buckets[i];
            let bar = "█".repeat(usize::try_from((n * BAR).div_ceil(most)).unwrap_or(0));
            format!("{:>8}  {bar:<40}  {:>9}", from(i), format::count(n))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gives_nothing() {
        assert!(Times::new().lines().is_empty());
        assert_eq!(Times::new().exact.len(), 0);
    }

    #[test]
    fn buckets_double_and_holes_are_shown() {
        let mut times = Times::new();
        for ns in [1000, 1023, 1024, 2047, 2048, 9000] {
            times.add(ns);
        }
        let lines = times.lines();
        assert_eq!(lines.len(), 5, "512 ns, 1, 2, 4 (empty), 8 µs: {lines:#?}");
        assert!(lines[0].trim_start().starts_with("512 ns"));
        assert!(lines[3].ends_with(" 0") && !lines[3].contains('█'));
        assert_eq!(lines[0].matches('█').count(), 40, "the fullest bucket has the longest bar");
        assert_eq!(lines[4].matches('█').count(), 20);
        assert_eq!((times.exact.len(), times.max()), (6, 9000 | 7));
    }

    #[test]
    fn zero_and_forever_are_times_too() {
        let mut times = Times::new();
        times.add(0);
        times.add(u64::MAX);
        assert_eq!(times.exact.len(), 2);
        assert_eq!(times.lines().len(), 64);
    }
}
