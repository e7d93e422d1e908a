//! Medians and spreads of repeated measurements.

/// Measurements of one quantity, in one unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Returns the value below which the share `q` of the measurements lies.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (q * (sorted.len().saturating_sub(1)) as f64).round() as usize;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Returns `median (10th percentile – 90th percentile)`.
    pub(crate) fn show(&self, digits: usize) -> String {
        let (low, high) = (self.quantile(0.1), self.quantile(0.9));
        format!("{:.digits$} ({low:.digits$} – {high:.digits$})", self.median())
    }

    /// Returns the ratios to the other sample, measurement by measurement: measurements that were
    /// made in turn had the same machine.
    pub(crate) fn over(&self, other: &Self) -> Self {
        self.values().zip(other.values()).map(|(one, other)| one / other).collect()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Self {
        Sample(values.into_iter().collect())
    }
}
