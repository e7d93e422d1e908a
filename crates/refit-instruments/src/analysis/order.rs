//! Where measuring may have changed the order of events of different processors (Kohr 1994, §5).
//!
//! Records delay the threads that write them. Two threads that wrote as many since they last met were delayed by the
//! same, and what they do next comes in the order in which it would have come. If the one that came second wrote more
//! of them, it may have been first without: when the gap between the two is less than what it was delayed beyond the
//! other. Threads meet where they touch the same thing: ask for it ([`Role::Wait`]) or get it ([`Role::Hold`]). Only
//! there does an order count, and only there is it looked at. What else the order of events depends on, such as
//! the scheduler's clock, no trace tells.

use std::collections::HashMap;

use serde::Serialize;

use super::compensation::Compensation;
use crate::definition::Role;
use crate::read::Seen;
use crate::record::Phase;

/// How many places are kept: those where the order is least certain.
const KEPT: usize = 100;

/// A thread asks for something, or gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Touch {
    /// The thread.
    pub thread: u32,
    /// Its processor.
    pub processor: u32,
    /// The event.
    pub event: u32,
    /// Ticks.
    pub time: u64,
}

/// Two touches of one thing that may have come in the other order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Doubt {
    /// The thing.
    pub what: u64,
    /// What came first.
    pub first: Touch,
    /// What came next, on another processor.
    pub second: Touch,
    /// How many ticks the second was delayed beyond the first, at the most.
    pub delay: f64,
}

impl Doubt {
    /// Ticks between the two.
    pub fn gap(&self) -> u64 {
        self.second.time.saturating_sub(self.first.time)
    }

    fn weight(&self) -> f64 {
        self.delay - self.gap() as f64
    }
}

/// All such places.
#[derive(Debug)]
pub struct Order {
    compensation: Compensation,
    /// How many records each thread has written.
    written: HashMap<u32, u64>,
    /// Who touched a thing last.
    last: HashMap<u64, Touch>,
    /// How many records two threads had written when they last met, the one with the lower number first.
    met: HashMap<(u32, u32), (u64, u64)>,
    doubts: Vec<Doubt>,
    count: u64,
    judged: u64,
}

impl Order {
    /// Nothing seen yet.
    pub fn new(compensation: Compensation) -> Order {
        let (written, last, met) = (HashMap::new(), HashMap::new(), HashMap::new());
        Order { compensation, written, last, met, doubts: Vec::new(), count: 0, judged: 0 }
    }

    /// Takes the next record in the order of time.
    pub fn see(&mut self, seen: &Seen, role: Role) {
        let record = &seen.record;
        // The kernel records switches; threads do not pay for that here.
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

    /// Two threads meet: by how much the second was delayed beyond the first since they last did, at the most.
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
        if self.doubts.len() >= 2 * KEPT {
            self.doubts = self.doubts();
        }
    }

    /// The places where the order is least certain, the least certain first.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = self.doubts.clone();
        doubts.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        doubts.truncate(KEPT);
        doubts
    }

    /// How many such places there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many touches came after one of another processor, and were looked at.
    pub fn judged(&self) -> u64 {
        self.judged
    }
}
