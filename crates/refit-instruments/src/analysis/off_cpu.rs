//! The time that threads spend off the processors, by the stacks on which they stood.
//!
//! A thread is off from the record that it was switched out until the record that it is switched in
//! on any processor. Where one of the two is lost, or the recording began or ended in between,
//! nothing is counted.

use std::collections::HashMap;

use crate::definition::Role;
use crate::read::Seen;

/// An interval in which a thread had no processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// The thread.
    pub thread: u32,
    /// The number of its stack; 0 if none was recorded.
    pub stack: u32,
    /// Whether it was runnable: others had the processor. Otherwise it waited.
    pub preempted: bool,
    /// The begin, in ticks.
    pub begin: u64,
    /// The end, in ticks.
    pub end: u64,
}

impl OffCpu {
    /// Returns the duration in ticks; 0 if the end is before the begin, which the clocks of two
    /// processors can cause.
    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// The threads that are off.
#[derive(Debug, Default)]
pub struct OffCpus {
    off: HashMap<u32, OffCpu>,
}

impl OffCpus {
    /// Processes the next record in the order of time. Returns the interval that it ends.
    pub fn see(&mut self, seen: &Seen, role: Role) -> Option<OffCpu> {
        let record = &seen.record;
        let (thread, time) = (record.thread, record.time);
        match role {
            Role::SwitchOut => {
                let preempted = record.payload[0] >> 32 != 0;
                let stack = record.payload[1] as u32;
                let off = OffCpu { thread, stack, preempted, begin: time, end: time };
                self.off.insert(thread, off);
                None
            }
            Role::SwitchIn => Some(OffCpu { end: time, ..self.off.remove(&thread)? }),
            _ => None,
        }
    }
}

/// The intervals of one stack and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpuSum {
    /// Their number.
    pub count: u64,
    /// Their ticks.
    pub ticks: u64,
    /// The ticks of the longest.
    pub longest: u64,
}

/// The key of a sum: the thread, its stack, and whether it was preempted.
pub type OffCpuKey = (u32, u32, bool);

/// Sums of intervals that have a stack.
#[derive(Debug, Default)]
pub struct OffCpuSums(HashMap<OffCpuKey, OffCpuSum>);

impl OffCpuSums {
    /// Adds an interval.
    pub fn add(&mut self, off: &OffCpu) {
        if off.stack == 0 {
            return;
        }
        let sum = self.0.entry((off.thread, off.stack, off.preempted)).or_default();
        sum.count += 1;
        sum.ticks = sum.ticks.saturating_add(off.ticks());
        sum.longest = sum.longest.max(off.ticks());
    }

    /// Returns the sums, the largest first.
    pub fn list(&self) -> Vec<(OffCpuKey, OffCpuSum)> {
        let mut all: Vec<_> = self.0.iter().map(|(key, sum)| (*key, *sum)).collect();
        all.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.ticks), *key));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Phase, Record, What};

    fn seen(time: u64, thread: u32, payload: [u64; 2]) -> Seen {
        let what = What::new(1, Phase::Point);
        Seen { processor: 0, record: Record { time, what, thread, payload } }
    }

    #[test]
    fn time_counts_from_a_switch_out_to_the_next_switch_in() {
        let mut off = OffCpus::default();
        let mut sums = OffCpuSums::default();
        let records = [
            // Nobody knows since when it has been off.
            (5, Role::SwitchIn, 7, [0, 0]),
            (10, Role::SwitchOut, 7, [0, 3]),
            (12, Role::SwitchOut, 8, [1 << 32, 4]),
            (15, Role::SwitchIn, 7, [0, 0]),
            (30, Role::SwitchIn, 8, [0, 0]),
            (40, Role::SwitchOut, 7, [0, 3]),
            // The switch in between is lost; the later one counts.
            (50, Role::SwitchOut, 7, [0, 3]),
            (70, Role::SwitchIn, 7, [0, 0]),
            (80, Role::SwitchOut, 7, [0, 0]),
            (90, Role::SwitchIn, 7, [0, 0]),
            (95, Role::SwitchOut, 7, [0, 3]),
        ];
        let mut intervals = Vec::new();
        for (time, role, thread, payload) in records {
            if let Some(one) = off.see(&seen(time, thread, payload), role) {
                intervals.push((one.thread, one.begin, one.end));
                sums.add(&one);
            }
        }
        assert_eq!(intervals, [(7, 10, 15), (8, 12, 30), (7, 50, 70), (7, 80, 90)]);
        let sum = |count, ticks, longest| OffCpuSum { count, ticks, longest };
        assert_eq!(sums.list(), [((7, 3, false), sum(2, 25, 20)), ((8, 4, true), sum(1, 18, 18))]);
    }
}
