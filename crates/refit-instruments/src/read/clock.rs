//! The conversion of ticks to nanoseconds.
//!
//! A trace contains readings of its clock together with the kernel's clocks: one at the beginning,
//! one at the end, and more in between. Times are interpolated linearly between two readings, and
//! extrapolated before the first and after the last. The reference is `CLOCK_MONOTONIC_RAW`, the
//! only clock of the kernel that is never adjusted, so that a step of the wall clock does not
//! appear in durations.

use crate::block::{ClockPair, ClockSource};

/// Converts ticks of one trace to times.
#[derive(Clone, Debug)]
pub struct Clock {
    source: ClockSource,
    /// The readings in order; ticks and raw time both increase from one to the next.
    pairs: Vec<ClockPair>,
    error: Option<u64>,
}

impl Clock {
    /// Creates a clock from readings in any order. Readings that contradict those before them are
    /// omitted.
    pub fn new(source: ClockSource, mut pairs: Vec<ClockPair>) -> Clock {
        pairs.sort_by_key(|pair| pair.ticks);
        let mut kept: Vec<ClockPair> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            if kept.last().is_none_or(|last| pair.ticks > last.ticks && pair.raw > last.raw) {
                kept.push(pair);
            }
        }
        let mut clock = Clock { source, pairs: kept, error: None };
        clock.error = clock.leave_one_out();
        clock
    }

    /// Returns the readings in use, in order.
    pub fn pairs(&self) -> &[ClockPair] {
        &self.pairs
    }

    /// Returns whether ticks can be converted to nanoseconds. If not, because there is only one
    /// reading, a tick counts as a nanosecond.
    pub fn is_calibrated(&self) -> bool {
        self.source == ClockSource::MonotonicRaw || self.pairs.len() > 1
    }

    /// Returns the largest deviation of a reading from the line between its neighbours, in
    /// nanoseconds; `None` with fewer than three readings.
    pub fn error(&self) -> Option<u64> {
        self.error
    }

    /// Returns the number of ticks per nanosecond over the whole trace.
    pub fn rate(&self) -> f64 {
        match (self.source, self.pairs.first(), self.pairs.last()) {
            (ClockSource::Cycles, Some(first), Some(last)) if last.raw > first.raw => {
                (last.ticks - first.ticks) as f64 / (last.raw - first.raw) as f64
            }
            _ => 1.0,
        }
    }

    /// Returns `CLOCK_MONOTONIC_RAW` at `ticks`, in nanoseconds.
    pub fn nanos(&self, ticks: u64) -> u64 {
        if self.source == ClockSource::MonotonicRaw {
            return ticks;
        }
        match self.around(ticks) {
            Some((from, to)) => on_line(from, to, ticks),
            // With one reading a tick counts as a nanosecond; with none as well, from zero.
            None => self.pairs.first().map_or(ticks, |pair| {
                saturate(i128::from(pair.raw) + i128::from(ticks) - i128::from(pair.ticks))
            }),
        }
    }

    /// Returns a number of ticks in nanoseconds, at the mean rate of the trace.
    pub fn span(&self, ticks: f64) -> f64 {
        ticks / self.rate()
    }

    /// Returns the readings between which `ticks` is interpolated.
    fn around(&self, ticks: u64) -> Option<(&ClockPair, &ClockPair)> {
        let after = self.pairs.partition_point(|pair| pair.ticks <= ticks);
        let to = after.clamp(1, self.pairs.len().saturating_sub(1).max(1));
        Some((self.pairs.get(to - 1)?, self.pairs.get(to)?))
    }

    fn leave_one_out(&self) -> Option<u64> {
        if self.source == ClockSource::MonotonicRaw {
            return Some(0);
        }
        let triples = self.pairs.windows(3);
        triples
            .map(|three| on_line(&three[0], &three[2], three[1].ticks).abs_diff(three[1].raw))
            .max()
    }
}

/// Returns the raw time at `ticks` on the line through two readings, whose ticks differ.
fn on_line(from: &ClockPair, to: &ClockPair, ticks: u64) -> u64 {
    let passed = i128::from(ticks) - i128::from(from.ticks);
    let time = i128::from(to.raw) - i128::from(from.raw);
    let count = i128::from(to.ticks) - i128::from(from.ticks);
    // Each factor is below 2^64, so the product of the two fits except for its sign.
    saturate(i128::from(from.raw).saturating_add(passed.saturating_mul(time) / count.max(1)))
}

fn saturate(nanos: i128) -> u64 {
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ticks: u64, raw: u64) -> ClockPair {
        ClockPair { ticks, raw, monotonic: raw, boot: raw, real: 0 }
    }

    #[test]
    fn time_runs_straight_between_readings_and_beyond_them() {
        let pairs = vec![pair(3_000, 2_000), pair(1_000, 1_000), pair(7_000, 3_000)];
        let clock = Clock::new(ClockSource::Cycles, pairs);
        for (ticks, nanos) in
            [(0, 500), (1_000, 1_000), (2_000, 1_500), (5_000, 2_500), (9_000, 3_500)]
        {
            assert_eq!(clock.nanos(ticks), nanos, "{ticks}");
        }
        assert_eq!(clock.rate(), 3.0);
        assert_eq!(clock.error(), Some(334), "the middle one, from the line of the others");
    }

    #[test]
    fn contradictions_are_left_out_and_extremes_do_not_overflow() {
        let pairs = vec![pair(1, u64::MAX), pair(u64::MAX, 0), pair(0, 0), pair(0, 5)];
        let clock = Clock::new(ClockSource::Cycles, pairs);
        assert_eq!(clock.pairs().len(), 2);
        assert_eq!(clock.nanos(u64::MAX), u64::MAX);
        assert_eq!(clock.nanos(0), 0);
    }

    #[test]
    fn a_step_of_the_wall_clock_does_not_show_in_durations() {
        let real = [1_000_000, 5_000, 2_000_000];
        let stepped =
            |i: usize| ClockPair { real: real[i], ..pair(1_000 * i as u64, 500 * i as u64) };
        let clock = Clock::new(ClockSource::Cycles, (0..3).map(stepped).collect());
        assert_eq!(clock.pairs().len(), 3);
        assert_eq!((clock.nanos(500), clock.nanos(1_500), clock.error()), (250, 750, Some(0)));
    }

    #[test]
    fn one_reading_is_no_calibration() {
        let clock = Clock::new(ClockSource::Cycles, vec![pair(100, 5_000)]);
        assert!(!clock.is_calibrated());
        assert_eq!((clock.nanos(150), clock.nanos(0), clock.error()), (5_050, 4_900, None));
        let clock = Clock::new(ClockSource::MonotonicRaw, Vec::new());
        assert!(clock.is_calibrated());
        assert_eq!(clock.nanos(42), 42);
    }
}
