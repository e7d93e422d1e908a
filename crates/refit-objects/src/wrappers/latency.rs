//! `latency`: the duration of calls, from precall to postcall. It includes the wait in a swap's
//! block phase.

use super::cells::{PerProcessor, Spread, Sum};
use super::options::{Settings, WrapperError};
use crate::description::InterfaceInfo;
use crate::wrapper::{After, Histogram, PostCall, PreCall, Wrapper};

#[derive(Debug)]
pub(super) struct Latency {
    interface: &'static InterfaceInfo,
    only: Option<usize>,
    /// A distribution of ticks for each method.
    cells: PerProcessor<Box<[Spread]>>,
}

impl Latency {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, WrapperError> {
        refit_sys::clock::prepare();
        let interface = settings.interface;
        let cells = || interface.methods.iter().map(|_| Spread::default()).collect();
        Ok(Latency { interface, only: settings.method()?, cells: PerProcessor::new(cells) })
    }

    /// Returns the name and the times of each method that was called.
    fn sums(&self) -> Vec<(&'static str, Sum)> {
        let mut sums = Vec::new();
        for (n, method) in self.interface.methods.iter().enumerate() {
            let mut sum = Sum::default();
            self.cells.iter().filter_map(|cells| cells.get(n)).for_each(|cell| sum.add(cell));
            if sum.total > 0 {
                sums.push((method.name, sum));
            }
        }
        sums
    }
}

impl Wrapper for Latency {
    fn name(&self) -> &str {
        "latency"
    }

    fn precall(&self, call: &PreCall<'_>) -> After {
        match self.only {
            Some(only) if only != call.method() => After::Forward,
            _ => After::Postcall(refit_sys::clock::ticks()),
        }
    }

    fn postcall(&self, call: &PostCall<'_>) {
        let took = refit_sys::clock::ticks().saturating_sub(call.state());
        if let Some(spread) = self.cells.at(call.processor()).get(call.method()) {
            spread.add(took);
        }
    }

    fn options(&self) -> String {
        super::options::only(self.interface, self.only)
    }

    fn stats(&self) -> Vec<(String, u64)> {
        let mut stats = Vec::new();
        for (name, sum) in self.sums() {
            let ns = refit_sys::clock::nanos;
            stats.push((format!("{name}.calls"), sum.total));
            stats.push((format!("{name}.p50_ns"), ns(sum.quantile(500))));
            stats.push((format!("{name}.p99_ns"), ns(sum.quantile(990))));
            stats.push((format!("{name}.max_ns"), ns(sum.largest)));
        }
        stats
    }

    fn histograms(&self) -> Vec<Histogram> {
        let nanos = refit_sys::clock::nanos;
        self.sums().iter().map(|(name, sum)| sum.histogram(name, "ns", nanos)).collect()
    }
}
