//! Intervals, from the records of their begin and end.
//!
//! Each thread has a stack. An end closes the innermost interval of its event; intervals that were
//! begun inside of it and are still open have lost their end and are dropped. An end without a
//! begin is a stray one. Both occur where records are lost, and where recording began or ended
//! within an interval. They are counted and never estimated.

use std::collections::HashMap;

use super::dumps::Dumps;
use crate::read::Seen;
use crate::record::{Phase, Record};

/// An interval that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The event.
    pub event: u32,
    /// The begin, in ticks.
    pub begin: u64,
    /// The processor on which it began.
    pub processor: u32,
    /// The payload of the begin.
    pub payload: [u64; 2],
    /// The ticks of the intervals directly inside of it.
    inner: u64,
    /// The ticks of dumps in those intervals.
    inner_dumped: u64,
    /// The number of records of this thread since the begin, without those of the begin and the
    /// end.
    records: u64,
    /// The number of the records that are attributed to intervals inside of it, as in
    /// [`Span::own_records`].
    inner_records: u64,
}

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its begin.
    pub open: Open,
    /// The thread.
    pub thread: u32,
    /// The end, in ticks.
    pub end: u64,
    /// The processor on which it ended.
    pub processor: u32,
    /// The payload of the end.
    pub payload: [u64; 2],
    /// The number of intervals that enclose it.
    pub depth: usize,
    /// The ticks in which all processors waited for a dump.
    pub dumped: u64,
}

impl Span {
    /// Returns the duration in ticks; 0 if the end is before the begin, which the clocks of two
    /// processors can cause.
    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.open.begin)
    }

    /// Returns the ticks that were not in an interval inside of it.
    pub fn own_ticks(&self) -> u64 {
        self.ticks().saturating_sub(self.open.inner)
    }

    /// Returns the part of [`Span::dumped`] that was not in an interval inside of it.
    pub fn own_dumped(&self) -> u64 {
        self.dumped.saturating_sub(self.open.inner_dumped)
    }

    /// Returns the number of records whose cost its duration contains: all inside of it, and half
    /// of its begin and of its end, since the times of these are taken within them.
    pub fn records(&self) -> u64 {
        self.open.records + 1
    }

    /// Returns the number of those records whose cost is outside of the intervals inside of it.
    pub fn own_records(&self) -> u64 {
        self.records() - self.open.inner_records
    }
}

/// The effect of a record on the intervals of its thread.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// An interval begins, with the given number of enclosing ones.
    Begin(usize),
    /// An interval ends.
    End(Span),
    /// An end without a begin.
    Stray,
    /// Neither a begin nor an end.
    Other,
}

/// The open intervals of all threads.
#[derive(Debug, Default)]
pub struct Spans {
    dumps: Dumps,
    threads: HashMap<u32, Vec<Open>>,
    given_up: Vec<Open>,
    stray: u64,
    unended: u64,
}

impl Spans {
    /// Creates an empty state.
    pub fn new(dumps: Dumps) -> Spans {
        Spans { dumps, ..Spans::default() }
    }

    /// Processes the next record in the order of time.
    pub fn see(&mut self, seen: &Seen) -> Step {
        self.given_up.clear();
        let Record { time, what, thread, payload } = seen.record;
        let (event, processor) = (what.id(), seen.processor);
        match what.phase() {
            Some(Phase::Begin) => {
                let stack = self.threads.entry(thread).or_default();
                stack.push(Open {
                    event,
                    begin: time,
                    processor,
                    payload,
                    inner: 0,
                    inner_dumped: 0,
                    records: 0,
                    inner_records: 0,
                });
                Step::Begin(stack.len() - 1)
            }
            Some(Phase::End) => self.end(thread, event, time, processor, payload),
            _ => {
                if let Some(stack) = self.threads.get_mut(&thread) {
                    count(stack);
                }
                Step::Other
            }
        }
    }

    fn end(
        &mut self,
        thread: u32,
        event: u32,
        end: u64,
        processor: u32,
        payload: [u64; 2],
    ) -> Step {
        let stack = self.threads.entry(thread).or_default();
        let Some(depth) = stack.iter().rposition(|open| open.event == event) else {
            self.stray += 1;
            count(stack);
            return Step::Stray;
        };
        while stack.len() > depth + 1 {
            self.unended += 1;
            let lost = stack.pop();
            self.given_up.extend(lost);
            // The intervals inside of the lost one are now inside of the enclosing one. The lost
            // interval itself adds only the record of its begin, since its end is missing.
            if let (Some(lost), Some(outer)) = (lost, stack.last_mut()) {
                outer.inner = outer.inner.saturating_add(lost.inner);
                outer.inner_dumped = outer.inner_dumped.saturating_add(lost.inner_dumped);
                outer.records += lost.records + 1;
                outer.inner_records += lost.inner_records;
            }
        }
        let Some(open) = stack.pop() else { return Step::Stray };
        let dumped = self.dumps.within(open.begin, end);
        let span = Span { open, thread, end, processor, payload, depth, dumped };
        if let Some(outer) = stack.last_mut() {
            outer.inner = outer.inner.saturating_add(span.ticks());
            outer.inner_dumped = outer.inner_dumped.saturating_add(dumped);
            // Counts the records of its begin and its end, and those inside of it; its own duration
            // contains the cost of those that `records` returns.
            outer.records += span.open.records + 2;
            outer.inner_records += span.records();
        }
        Step::End(span)
    }

    /// Returns the intervals that were found to have no end by the last record.
    pub fn given_up(&self) -> &[Open] {
        &self.given_up
    }

    /// Returns the open intervals of a thread, the outermost first.
    pub fn open(&self, thread: u32) -> &[Open] {
        self.threads.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// Returns all intervals that are still open, with their threads.
    pub fn unfinished(&self) -> impl Iterator<Item = (u32, &Open)> {
        self.threads.iter().flat_map(|(thread, stack)| stack.iter().map(|open| (*thread, open)))
    }

    /// Returns the number of ends so far without a begin.
    pub fn stray(&self) -> u64 {
        self.stray
    }

    /// Returns the number of begins so far without an end.
    pub fn unended(&self) -> u64 {
        self.unended
    }
}

/// Counts a record in the innermost interval; enclosing intervals are updated when that ends.
fn count(stack: &mut [Open]) {
    if let Some(inner) = stack.last_mut() {
        inner.records += 1;
    }
}
