//! Places where measuring may have changed the order of events of different processors (Kohr 1994,
//! §5).
//!
//! Records delay the threads that write them. Two threads that have written the same number of
//! records since they last met were delayed equally, and the order of their next events is the same
//! as without measuring. If the second one has written more records, it might have come first
//! without them: this is possible if the gap between the two events is less than the additional
//! delay of the second thread. Threads meet where they touch the same object: when they request it
//! ([`Role::Wait`]) or obtain it ([`Role::Hold`]). Only there does the order matter, and only there
//! is it examined. Other influences on the order, such as the scheduler's clock, cannot be
//! determined from a trace.

use std::collections::HashMap;

use serde::Serialize;

use super::compensation::Compensation;
use crate::definition::Role;
use crate::read::Seen;
use crate::record::Phase;

/// The number of places that are kept, which are those where the order is least certain.
const MAX_DOUBTS: usize = 100;

/// A thread requests or obtains an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Touch {
    /// The thread.
    pub thread: u32,
    /// Its processor.
    pub processor: u32,
    /// The event.
    pub event: u32,
    /// The time, in ticks.
    pub time: u64,
}

/// Two touches of an object that may have been in the other order without measuring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Doubt {
    /// The object.
    pub what: u64,
    /// The first touch.
    pub first: Touch,
    /// The next touch, on another processor.
    pub second: Touch,
    /// The maximum additional delay of the second touch, in ticks.
    pub delay: f64,
}

impl Doubt {
    /// Returns the ticks between the two.
    pub fn gap(&self) -> u64 {
        self.second.time.saturating_sub(self.first.time)
    }

    fn weight(&self) -> f64 {
        self.delay - self.gap() as f64
    }
}

/// All places where the order is uncertain.
#[derive(Debug)]
pub struct Order {
    compensation: Compensation,
    /// The number of records that each thread has written.
    written: HashMap<u32, u64>,
    /// The last touch of each object.
    last: HashMap<u64, Touch>,
    /// The numbers of records that two threads had written when they last met, the one with the
    /// lower ID first.
    met: HashMap<(u32, u32), (u64, u64)>,
    doubts: Vec<Doubt>,
    count: u64,
    judged: u64,
}

impl Order {
    /// Creates an empty state.
    pub fn new(compensation: Compensation) -> Order {
        let (written, last, met) = (HashMap::new(), HashMap::new(), HashMap::new());
        Order { compensation, written, last, met, doubts: Vec::new(), count: 0, judged: 0 }
    }

    /// Processes the next record in the order of time.
    pub fn see(&mut self, seen: &Seen, role: Role) {
        let record = &seen.record;
        // The kernel records context switches, which do not delay threads here.
        if !matches!(role, Role::SwitchIn | Role::SwitchOut) {
            *self.written.entry(record.thread).or_default() += 1;
        }
        let touches = matches!(role, Role::Wait | Role::Hold);
        if !touches || record.what.phase() != Some(Phase::Begin) {
            return;
        }
        let second = Touch {
            thread: record.thread,
            processor: seen.processor,
            event: record.what.id(),
            time: record.time,
        };
        let what = record.payload[0];
        let Some(first) = self.last.insert(what, second) else { return };
        if first.thread == second.thread {
            return;
        }
        let delay = self.meet(first.thread, second.thread);
        if first.processor == second.processor {
            return;
        }
        self.judged += 1;
        let doubt = Doubt { what, first, second, delay };
        if doubt.weight() > 0.0 {
            self.count += 1;
            self.keep(doubt);
        }
    }

    /// Records that two threads meet. Returns the maximum additional delay of the second thread
    /// since they last met.
    fn meet(&mut self, first: u32, second: u32) -> f64 {
        let written = |thread| self.written.get(&thread).copied().unwrap_or(0);
        let now = (written(first.min(second)), written(first.max(second)));
        let then = self.met.insert((first.min(second), first.max(second)), now).unwrap_or((0, 0));
        let since = (now.0 - then.0, now.1 - then.1);
        let (mine, other) = if first < second { (since.1, since.0) } else { since };
        let (more, error) = self.compensation.price(mine);
        let (less, other_error) = self.compensation.price(other);
        more - less + error + other_error
    }

    fn keep(&mut self, doubt: Doubt) {
        self.doubts.push(doubt);
        if self.doubts.len() >= 2 * MAX_DOUBTS {
            self.doubts = self.doubts();
        }
    }

    /// Returns the places where the order is least certain, the least certain first.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = self.doubts.clone();
        doubts.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        doubts.truncate(MAX_DOUBTS);
        doubts
    }

    /// Returns the number of places where the order is uncertain.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of touches that followed one on another processor and were examined.
    pub fn judged(&self) -> u64 {
        self.judged
    }
}
