//! Compensation of measured times for the cost of measuring (Kohr 1994, §5; Malony, Reed and
//! Wijshoff 1992).
//!
//! An interval that contains `n` records took `n·c` longer than without them, where `c` is the cost
//! of a record. Time in which all processors waited while their buffers were written is subtracted
//! as well. The error estimates the inaccuracy of the result: `c` varies (`σ·√n`), and its value is
//! known only as well as two measurements of it agree: `n·|in vivo − in vitro|/2`, or, if it was
//! measured only in a loop, `n·(cold − c)/2`, since a program may empty the caches between two
//! records. The effects of instruments on caches, on the order of events and on the waits of other
//! threads are not compensated.

use serde::Serialize;

use crate::block::{Cost, Place};
use crate::read::Trace;

/// Subtracts the cost of measuring from times. All times are in ticks.
#[derive(Clone, Debug)]
pub struct Compensation {
    cost: f64,
    spread: f64,
    doubt: f64,
    known: bool,
}

/// A time without the cost of measuring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Corrected {
    /// The time, which is not below 0.
    pub time: f64,
    /// The possible error in either direction.
    pub error: f64,
    /// The share of the time (0 to 1, without dumps) that was attributed to records.
    pub share: f64,
}

impl Compensation {
    /// Creates the compensation with the costs in a trace.
    pub fn new(trace: &Trace) -> Compensation {
        let at = |place| {
            let is = |cost: &&Cost| cost.instrument == "event" && cost.place == place;
            trace.costs().find(is).filter(|cost| cost.ticks.is_finite() && cost.ticks >= 0.0)
        };
        let (vitro, vivo) = (at(Place::InVitro), at(Place::InVivo));
        let best = vivo.or(vitro);
        let cost = best.map_or(0.0, |cost| cost.ticks);
        let doubt = match (vitro, vivo) {
            (Some(vitro), Some(vivo)) => (vivo.ticks - vitro.ticks).abs() / 2.0,
            (Some(only), None) | (None, Some(only)) => (only.cold - only.ticks).max(0.0) / 2.0,
            (None, None) => 0.0,
        };
        let spread = best.map_or(0.0, |cost| cost.spread.max(0.0));
        Compensation { cost, spread, doubt, known: best.is_some() }
    }

    /// Returns whether the trace contains the cost of a record; if not, only dumps are subtracted.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Returns the cost of a record.
    pub fn cost(&self) -> Corrected {
        Corrected { time: self.cost, error: self.spread + self.doubt, share: 0.0 }
    }

    /// Returns the cost of the given number of records, and its possible error.
    pub fn price(&self, records: u64) -> (f64, f64) {
        let n = records as f64;
        (n * self.cost, n.sqrt() * self.spread + n * self.doubt)
    }

    /// Subtracts the cost of `records` and `dumped` ticks of dumps from a time that is a sum over
    /// `intervals`.
    pub fn correct(&self, time: u64, records: u64, dumped: u64) -> Corrected {
        let (cost, error) = self.price(records);
        let running = (time as f64 - dumped as f64).max(0.0);
        let share = if running > 0.0 { (cost / running).min(1.0) } else { 0.0 };
        Corrected { time: (running - cost).max(0.0), error, share }
    }
}
