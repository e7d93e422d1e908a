//! What measuring costs, taken out of what was measured (Kohr 1994, §5; Malony, Reed and Wijshoff 1992).
//!
//! An interval with `n` records in it took `n·c` longer than it would have, where `c` is what a record costs; time in
//! which all processors stood still to write their buffers is nobody's. The error says how far that can be wrong: `c`
//! varies (`σ·√n`), and its value is known only as well as two ways to measure it agree: `n·|in vivo − in vitro|/2`, or,
//! where it was measured in a loop only, `n·(cold − c)/2`, since a program between two records may have emptied the
//! caches. What instruments do to caches, to the order of events and to the waiting of others is not taken out.

use serde::Serialize;

use crate::block::{Cost, Place};
use crate::read::Trace;

/// Takes costs out of times. All times are in ticks.
#[derive(Clone, Debug)]
pub struct Compensation {
    cost: f64,
    spread: f64,
    doubt: f64,
    known: bool,
}

/// A time without what measuring costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Corrected {
    /// The time, not below 0.
    pub time: f64,
    /// How far it can be wrong, to either side.
    pub error: f64,
    /// Which part of the time (0 to 1, dumps left out) was taken for what records cost.
    pub share: f64,
}

impl Compensation {
    /// From what a trace says of costs.
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

    /// Whether the trace says what a record costs; if not, dumps alone are taken out.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// What a record costs.
    pub fn cost(&self) -> Corrected {
        Corrected { time: self.cost, error: self.spread + self.doubt, share: 0.0 }
    }

    /// What so many records cost, and how far that can be wrong.
    pub fn price(&self, records: u64) -> (f64, f64) {
        let n = records as f64;
        (n * self.cost, n.sqrt() * self.spread + n * self.doubt)
    }

    /// A time that pays for `records` and for `dumped` ticks of dumps, summed over `intervals`.
    pub fn correct(&self, time: u64, records: u64, dumped: u64) -> Corrected {
        let (cost, error) = self.price(records);
        let running = (time as f64 - dumped as f64).max(0.0);
        let share = if running > 0.0 { (cost / running).min(1.0) } else { 0.0 };
        Corrected { time: (running - cost).max(0.0), error, share }
    }
}
