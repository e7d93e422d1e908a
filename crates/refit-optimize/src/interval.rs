//! The gain that measured ratios show: an estimate with an interval that holds at every look.
//!
//! Other programs disturb single measurements much, so means would say little. The logarithms of
//! the ratios are ranked instead (Wilcoxon's signed-rank test): the estimate is the median of the
//! means of all pairs of them (Hodges and Lehmann, 1963), and the interval has those values that
//! the test does not reject. It assumes that the logarithms are independent and lie symmetrically,
//! and nothing else. If a result is looked at several times, each look gets its part of the
//! probability of an error (Bonferroni), so that all intervals hold together.

/// An interval of relative gains: 0.05 is 5 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The best estimate.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Whether it says if there is a gain or a loss.
    pub fn is_sure(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Probability that the interval of any of all looks is wrong.
pub const ERROR: f64 = 0.05;

/// Returns the gain that these logarithms of ratios show, for one of `looks` looks; `None` if they
/// are too few.
pub fn gain(logarithms: &[f64], looks: u32) -> Option<Interval> {
    let n = logarithms.len();
    let pairs = (0..n).flat_map(|one| (one..n).map(move |other| (one, other)));
    let mut means: Vec<f64> =
        pairs.map(|(one, other)| f64::midpoint(logarithms[one], logarithms[other])).collect();
    means.sort_by(f64::total_cmp);
    let cut = rejected(n, ERROR / f64::from(looks.max(1)) / 2.0)?;
    let middle = f64::midpoint(means[(means.len() - 1) / 2], means[means.len() / 2]);
    let [estimate, low, high] = [middle, means[cut], means[means.len() - 1 - cut]].map(f64::exp_m1);
    Some(Interval { estimate, low, high })
}

/// Returns the number of means at each end that the test rejects with this probability; `None` if
/// so few values can reject nothing.
fn rejected(n: usize, probability: f64) -> Option<usize> {
    // The sum of the ranks of positive values, each positive with probability 1/2.
    let mut sums = vec![1.0_f64];
    for rank in 1..=n {
        let mut next = vec![0.0; sums.len() + rank];
        for (sum, part) in sums.iter().enumerate() {
            next[sum] += part / 2.0;
            next[sum + rank] += part / 2.0;
        }
        sums = next;
    }
    let mut below = 0.0;
    let rejects = sums.iter().take_while(|part| {
        below += **part;
        below <= probability
    });
    rejects.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // Two-sided 5 %: the largest sum that is rejected is 0 for 6 values, 8 for 10, 52 for 20.
        for (n, wanted) in [(5, None), (6, Some(0)), (10, Some(8)), (20, Some(52))] {
            assert_eq!(rejected(n, 0.025), wanted, "{n}");
        }
    }

    #[test]
    fn outliers_do_not_hide_a_gain() {
        let mut ratios = vec![0.05; 12];
        for (at, one) in ratios.iter_mut().enumerate() {
            *one += (at as f64 - 6.0) / 1000.0;
        }
        (ratios[3], ratios[9]) = (-0.9, 0.9);
        let found = gain(&ratios, 1).expect("enough");
        assert!((found.estimate - 0.05).abs() < 0.01 && found.low > 0.0, "{found:?}");
        assert_eq!(gain(&ratios[..3], 1), None);
    }
}
