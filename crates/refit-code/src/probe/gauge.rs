//! Time in something that is entered and left, from three cells that a program counts into: the sum of the times of leaving less those of
//! entering, how often it was entered, how often left ([`Action::Time`](crate::splice::Action::Time)).
//!
//! Where nobody was inside when counting began, the sum tells all: with *n* = entered − left, the time inside up to now is sum + *n* ·
//! now. Each of the *k* threads that were inside already makes that too small by the time since counting began: it leaves without having
//! entered, or has not left yet. *k* is not known, but it is a whole number that nothing changes, and
//!
//! - nobody leaves who is not inside: at any moment, *k* ≥ −*n*;
//! - no time inside is below zero: *k* ≥ −(sum + *n* · now) / time since.
//!
//! The least number that does is taken. It is the right one where one thread at a time is inside, whether it came before or not, and
//! where at some moment that was looked at nobody was.

/// A reading of the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cells {
    pub(super) sum: u64,
    pub(super) entered: u64,
    pub(super) left: u64,
}

impl Cells {
    fn inside(self) -> i64 {
        self.entered.wrapping_sub(self.left).cast_signed()
    }
}

/// What is known of how many were inside when counting began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gauge {
    before: i64,
}

impl Gauge {
    /// Looks at the counts while they grow; the entries were read after the exits.
    pub(super) fn see(&mut self, cells: Cells) {
        self.before = self.before.max(-cells.inside());
    }

    /// Cycles inside between the times `began` and `now`, from cells that do not change any more; `slack`: by how much `now` may be wrong.
    pub(super) fn cycles(mut self, cells: Cells, began: u64, now: u64, slack: u64) -> u64 {
        self.see(cells);
        let since = i128::from(now.wrapping_sub(began)).max(1);
        let inside = cells.inside();
        let known = cells.sum.wrapping_add(inside.cast_unsigned().wrapping_mul(now)).cast_signed();
        let known = i128::from(known);
        let slack = i128::from(slack) * i128::from(inside.unsigned_abs());
        let missing = (-known - slack).max(0);
        let before = i128::from(self.before).max((missing + since - 1) / since);
        u64::try_from((known + before * since).max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: u64 = 1 << 50;
    const NOW: u64 = BEGAN + 1000;

    /// Cells after these entries and exits, at times since counting began.
    fn cells(entries: &[u64], exits: &[u64]) -> Cells {
        let sum =
            |times: &[u64]| times.iter().fold(0_u64, |sum, time| sum.wrapping_add(BEGAN + time));
        Cells {
            sum: sum(exits).wrapping_sub(sum(entries)),
            entered: entries.len() as u64,
            left: exits.len() as u64,
        }
    }

    fn cycles(cells: Cells) -> u64 {
        Gauge::default().cycles(cells, BEGAN, NOW, 10)
    }

    #[test]
    fn calls_are_summed_whether_they_begin_or_end_outside_of_the_time() {
        assert_eq!(cycles(cells(&[], &[])), 0);
        assert_eq!(cycles(cells(&[100, 300], &[150, 400])), 150, "both inside");
        assert_eq!(cycles(cells(&[900], &[])), 100, "goes on");
        assert_eq!(cycles(cells(&[], &[200])), 200, "had begun");
        assert_eq!(cycles(cells(&[300], &[200])), 900, "had begun; another goes on");
        assert_eq!(cycles(cells(&[300, 500], &[200, 400])), 800);
        assert_eq!(cycles(cells(&[201], &[200])), 999, "never outside for long");
        assert_eq!(cycles(cells(&[500, 500], &[700, 800])), 500, "two threads");
    }

    #[test]
    fn who_was_seen_inside_from_the_beginning_counts() {
        let mut gauge = Gauge::default();
        // Two leave that have not entered; later two others are inside.
        gauge.see(cells(&[], &[100, 100]));
        let both = cells(&[400, 400], &[100, 100]);
        assert_eq!(gauge.cycles(both, BEGAN, NOW, 10), 1400);
    }

    #[test]
    fn a_time_that_is_a_little_early_invents_nobody() {
        assert_eq!(cycles(cells(&[1005], &[])), 0);
    }
}
