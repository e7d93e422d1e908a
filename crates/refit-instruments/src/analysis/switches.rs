//! The context switches on each processor: the context-switch transition matrices of Kohr 1994,
//! figure 17.
//!
//! If a trace contains records of context switches, these are counted. If it contains none, the
//! records of threads show at least that one thread was followed by another;
//! [`Switches::is_seen_by_records`] reports this.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::definition::Role;
use crate::read::Seen;

/// The transitions on one processor from a thread to the next; 0 stands for none or an unknown
/// thread.
pub type Matrix = BTreeMap<(u32, u32), Cell>;

/// A transition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The number of times it occurred.
    pub count: u64,
    /// The number of times the first thread was preempted.
    pub preempted: u64,
    /// The ticks for which the first thread had the processor before, where both ends are known.
    pub ticks: u64,
}

/// The matrices of all processors.
#[derive(Debug, Default)]
pub struct Switches {
    reported: BTreeMap<u32, Matrix>,
    seen: BTreeMap<u32, Matrix>,
    processors: BTreeMap<u32, Running>,
}

#[derive(Debug, Default)]
struct Running {
    /// The thread that has the processor, and since when.
    on: Option<(u32, u64)>,
    /// The thread that left, while no other has come.
    left: Option<Departure>,
    /// The thread that wrote the last record.
    wrote: Option<(u32, u64)>,
}

/// A thread that left its processor.
#[derive(Clone, Copy, Debug)]
struct Departure {
    thread: u32,
    /// The thread that is to follow; 0 if it is not known.
    next: u32,
    preempted: bool,
    ticks: u64,
}

impl Departure {
    /// Returns whether `to`, which reports that it follows `from`, comes after this one.
    fn fits(&self, from: u32, to: u32) -> bool {
        (self.next == 0 || self.next == to) && (from == 0 || from == self.thread)
    }

    fn count(&self, matrix: &mut Matrix, next: u32) {
        add(matrix, (self.thread, next), self.preempted, self.ticks);
    }
}

impl Switches {
    /// Processes the next record in the order of time.
    pub fn see(&mut self, seen: &Seen, role: Role) {
        let record = &seen.record;
        let running = self.processors.entry(seen.processor).or_default();
        let first = record.payload[0] as u32;
        match role {
            Role::SwitchOut => {
                let ticks = running.leave(record.thread, record.time);
                let preempted = record.payload[0] >> 32 != 0;
                let matrix = self.reported.entry(seen.processor).or_default();
                if let Some(left) = running.left.replace(Departure {
                    thread: record.thread,
                    next: first,
                    preempted,
                    ticks,
                }) {
                    left.count(matrix, left.next);
                }
            }
            Role::SwitchIn => {
                let matrix = self.reported.entry(seen.processor).or_default();
                let left = running.left.take();
                match left {
                    // One transition, reported by both threads.
                    Some(left) if left.fits(first, record.thread) => {
                        left.count(matrix, record.thread)
                    }
                    other => {
                        if let Some(left) = other {
                            left.count(matrix, left.next);
                        }
                        let ticks = running.leave(first, record.time);
                        add(matrix, (first, record.thread), false, ticks);
                    }
                }
                running.on = Some((record.thread, record.time));
            }
            _ => {
                let (last, since) = running.wrote.unwrap_or((record.thread, record.time));
                if last != record.thread {
                    let ticks = record.time.saturating_sub(since);
                    let matrix = self.seen.entry(seen.processor).or_default();
                    add(matrix, (last, record.thread), false, ticks);
                    running.wrote = Some((record.thread, record.time));
                } else {
                    running.wrote = Some((last, since));
                }
            }
        }
    }

    /// Returns whether the trace has no records of context switches, so that transitions were
    /// derived from other records.
    pub fn is_seen_by_records(&self) -> bool {
        self.reported.is_empty()
    }

    /// Counts the threads that left and were followed by none. To be called after the last record.
    pub fn finish(&mut self) {
        for (processor, running) in &mut self.processors {
            if let Some(left) = running.left.take() {
                left.count(self.reported.entry(*processor).or_default(), left.next);
            }
        }
    }

    /// Returns the matrix of each processor.
    pub fn matrices(&self) -> &BTreeMap<u32, Matrix> {
        if self.is_seen_by_records() { &self.seen } else { &self.reported }
    }
}

impl Running {
    /// Returns the ticks for which the thread that leaves had the processor; 0 if they are not
    /// known.
    fn leave(&mut self, thread: u32, now: u64) -> u64 {
        match self.on.take() {
            Some((on, since)) if on == thread => now.saturating_sub(since),
            _ => 0,
        }
    }
}

fn add(matrix: &mut Matrix, key: (u32, u32), preempted: bool, ticks: u64) {
    let cell = matrix.entry(key).or_default();
    cell.count += 1;
    cell.preempted += u64::from(preempted);
    cell.ticks = cell.ticks.saturating_add(ticks);
}
