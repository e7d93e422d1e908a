//! The measurements of a probation: all calls of an object together.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::cells::{PerProcessor, Spread, Sum, count, read};
use crate::condition::Measured;
use crate::wrapper::{After, Outcome, PostCall, PreCall, Wrapper};

/// Counts and times calls from its creation on.
#[derive(Debug)]
pub(crate) struct Meter {
    began: Instant,
    cells: PerProcessor<Cell>,
}

#[derive(Debug, Default)]
struct Cell {
    errors: AtomicU64,
    /// The sum of all times, in ticks.
    ticks: AtomicU64,
    times: Spread,
}

impl Meter {
    pub(crate) fn new() -> Arc<Self> {
        refit_sys::clock::prepare();
        Arc::new(Meter { began: Instant::now(), cells: PerProcessor::new(Cell::default) })
    }

    pub(crate) fn measured(&self) -> Measured {
        let (mut sum, mut errors, mut ticks) = (Sum::default(), 0, 0);
        for cell in self.cells.iter() {
            sum.add(&cell.times);
            errors += read(&cell.errors);
            ticks += read(&cell.ticks);
        }
        let nanos = refit_sys::clock::nanos;
        Measured {
            calls: sum.total,
            errors,
            seconds: self.began.elapsed().as_secs_f64(),
            mean: nanos(ticks) as f64 / sum.total.max(1) as f64,
            p50: nanos(sum.quantile(500)),
            p90: nanos(sum.quantile(900)),
            p99: nanos(sum.quantile(990)),
            max: nanos(sum.largest),
        }
    }
}

impl Wrapper for Meter {
    fn name(&self) -> &str {
        "probation"
    }

    fn precall(&self, _call: &PreCall<'_>) -> After {
        After::Postcall(refit_sys::clock::ticks())
    }

    fn postcall(&self, call: &PostCall<'_>) {
        let took = refit_sys::clock::ticks().saturating_sub(call.state());
        let cell = self.cells.at(call.processor());
        cell.times.add(took);
        cell.ticks.fetch_add(took, std::sync::atomic::Ordering::Relaxed);
        if call.outcome() != Outcome::Returned {
            count(&cell.errors);
        }
    }
}
