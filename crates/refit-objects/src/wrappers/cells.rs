//! Counters and histograms that threads on different processors do not share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wrapper::Histogram;

/// A value on its own cache lines: two, since the processor fetches them in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Padded<T>(pub(super) T);

/// A value for each processor.
#[derive(Debug)]
pub(super) struct PerProcessor<T>(Box<[Padded<T>]>);

impl<T> PerProcessor<T> {
    pub(super) fn new(mut make: impl FnMut() -> T) -> Self {
        let processors = refit_sys::processor::count();
        PerProcessor((0..processors).map(|_| Padded(make())).collect())
    }

    /// Returns the value of a processor; for a number beyond the last, that of some processor.
    #[inline]
    pub(super) fn at(&self, processor: usize) -> &T {
        &self.0[processor % self.0.len()].0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

/// Increments a counter. Exact, although the thread may have been moved to another processor.
#[inline]
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The number of subranges of each power of two: a value is known to an eighth.
const FINE: u64 = 8;
const FINE_BITS: u32 = FINE.ilog2();
/// The number of ranges: one for each value below [`FINE`], then [`FINE`] for each of 61 powers of
/// two.
const FINE_RANGES: usize = (FINE as usize) * (64 - FINE_BITS as usize + 1);

/// A distribution of values, to an eighth of each. Four kilobytes, so it is allocated with the
/// first value.
#[derive(Debug, Default)]
pub(super) struct Spread(OnceLock<Box<SpreadCells>>);

#[derive(Debug)]
struct SpreadCells {
    ranges: [AtomicU64; FINE_RANGES],
    largest: AtomicU64,
}

fn fine_range(value: u64) -> usize {
    if value < FINE {
        return value as usize;
    }
    let shift = value.ilog2() - FINE_BITS;
    (u64::from(shift + 1) * FINE + ((value >> shift) - FINE)) as usize
}

fn fine_from(range: usize) -> u64 {
    let range = range as u64;
    if range < FINE {
        return range;
    }
    (FINE + range % FINE) << (range / FINE - 1)
}

impl Spread {
    #[inline]
    pub(super) fn add(&self, value: u64) {
        let cells = self.0.get_or_init(|| {
            let ranges = std::array::from_fn(|_| AtomicU64::new(0));
            Box::new(SpreadCells { ranges, largest: AtomicU64::new(0) })
        });
        count(&cells.ranges[fine_range(value)]);
        if value > cells.largest.load(Ordering::Relaxed) {
            cells.largest.fetch_max(value, Ordering::Relaxed);
        }
    }
}

/// The sum of several [`Spread`]s.
#[derive(Debug, Default)]
pub(super) struct Sum {
    ranges: Vec<u64>,
    pub(super) total: u64,
    pub(super) largest: u64,
}

impl Sum {
    pub(super) fn add(&mut self, spread: &Spread) {
        let Some(cells) = spread.0.get() else { return };
        self.ranges.resize(FINE_RANGES, 0);
        for (sum, cell) in self.ranges.iter_mut().zip(&cells.ranges) {
            let n = read(cell);
            *sum += n;
            self.total += n;
        }
        self.largest = self.largest.max(read(&cells.largest));
    }

    /// Returns the value that `per_mille` of all do not exceed, at most an eighth too large.
    pub(super) fn quantile(&self, per_mille: u64) -> u64 {
        let wanted = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (range, n) in self.ranges.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                let next = if range + 1 < FINE_RANGES { fine_from(range + 1) } else { u64::MAX };
                return (next - 1).min(self.largest);
            }
        }
        self.largest
    }

    /// Returns the histogram, with `scale` applied to the limits of the ranges.
    pub(super) fn histogram(
        &self,
        name: &str,
        unit: &str,
        scale: impl Fn(u64) -> u64,
    ) -> Histogram {
        let some = self.ranges.iter().enumerate().filter(|(_, n)| **n > 0);
        let ranges = some.map(|(range, n)| (scale(fine_from(range)), *n)).collect();
        Histogram { name: name.to_owned(), unit: unit.to_owned(), ranges }
    }
}

/// A distribution of values, in powers of two: the first range is that of 0, then 1, 2–3, 4–7 …
#[derive(Debug)]
pub(super) struct Powers([AtomicU64; 65]);

impl Default for Powers {
    fn default() -> Self {
        Powers(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Powers {
    #[inline]
    pub(super) fn add(&self, value: u64) {
        count(&self.0[(64 - value.leading_zeros()) as usize]);
    }

    /// Returns the sum of several as one histogram.
    pub(super) fn histogram<'a>(
        all: impl Iterator<Item = &'a Powers>,
        name: &str,
        unit: &str,
    ) -> Histogram {
        let mut sums = [0; 65];
        for powers in all {
            for (sum, cell) in sums.iter_mut().zip(&powers.0) {
                *sum += read(cell);
            }
        }
        let from = |range: usize| if range == 0 { 0 } else { 1 << (range - 1) };
        let some = sums.iter().enumerate().filter(|(_, n)| **n > 0);
        let ranges = some.map(|(range, n)| (from(range), *n)).collect();
        Histogram { name: name.to_owned(), unit: unit.to_owned(), ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_range(value: u64) {
            let range = fine_range(value);
            prop_assert!(fine_from(range) <= value);
            prop_assert!(range + 1 == FINE_RANGES || value < fine_from(range + 1));
            prop_assert!(value - fine_from(range) <= value / FINE);
        }

        #[test]
        fn quantiles_are_an_eighth_too_large_at_most(mut values in prop::collection::vec(0..u64::MAX, 1..200)) {
            let spread = Spread::default();
            values.iter().for_each(|v| spread.add(*v));
            let mut sum = Sum::default();
            sum.add(&spread);
            values.sort_unstable();
            for per_mille in [1, 500, 990, 1000] {
                let index = (values.len() as u64 * per_mille).div_ceil(1000).max(1) - 1;
                let exact = values[index as usize];
                let said = sum.quantile(per_mille);
                prop_assert!(said >= exact && said - exact <= exact / FINE + 1, "{said} for {exact}");
            }
            prop_assert_eq!(sum.total, values.len() as u64);
            prop_assert_eq!(sum.quantile(1000), values[values.len() - 1]);
        }
    }

    #[test]
    fn powers_have_the_limits_they_say() {
        let powers = Powers::default();
        [0, 1, 2, 3, 4, 4095, 4096, u64::MAX].into_iter().for_each(|v| powers.add(v));
        let histogram = Powers::histogram([&powers].into_iter(), "x", "");
        let expected = [(0, 1), (1, 1), (2, 2), (4, 1), (2048, 1), (4096, 1), (1 << 63, 1)];
        assert_eq!(histogram.ranges, expected);
    }
}
