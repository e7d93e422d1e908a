//! Intervals from the records of their begin and end.
//!
//! Each thread has a stack. An end closes the innermost interval of its event; what was opened inside of that and is
//! still open has lost its end, and is given up. An end whose begin is not there is a stray one. Both happen where
//! records are lost, and where recording began or ended within an interval; they are counted, never guessed.

use std::collections::HashMap;

use super::dumps::Dumps;
use crate::read::Seen;
use crate::record::{Phase, Record};

/// An interval that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The event.
    pub event: u32,
    /// Ticks of its begin.
    pub begin: u64,
    /// The processor on which it began.
    pub processor: u32,
    /// Payload of the begin.
    pub payload: [u64; 2],
    /// Ticks of the intervals directly inside.
    inner: u64,
    /// Ticks of dumps in those.
    inner_dumped: u64,
    /// Records of this thread since the begin, without those of the begin and end.
    records: u64,
    /// Of those, the ones that lie in intervals inside, as [`Span::own_records`] counts them.
    inner_records: u64,
}

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// How it began.
    pub open: Open,
    /// The thread.
    pub thread: u32,
    /// Ticks of its end.
    pub end: u64,
    /// The processor on which it ended.
    pub processor: u32,
    /// Payload of the end.
    pub payload: [u64; 2],
    /// How many intervals are around it.
    pub depth: usize,
    /// Ticks in which all processors stood still to write.
    pub dumped: u64,
}

impl Span {
    /// How long it took, in ticks; 0 if its end is before its begin, as clocks of two processors may have it.
    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.open.begin)
    }

    /// How much of that was in no interval inside, in ticks.
    pub fn own_ticks(&self) -> u64 {
        self.ticks().saturating_sub(self.open.inner)
    }

    /// How much of [`Span::dumped`] was in no interval inside.
    pub fn own_dumped(&self) -> u64 {
        self.dumped.saturating_sub(self.open.inner_dumped)
    }

    /// How many records its time pays for: all inside, and half of its begin and of its end, whose times are taken
    /// within them.
    pub fn records(&self) -> u64 {
        self.open.records + 1
    }

    /// How many of those are paid for outside of the intervals inside.
    pub fn own_records(&self) -> u64 {
        self.records() - self.open.inner_records
    }
}

/// What a record does to the intervals of its thread.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// One begins, inside of so many others.
    Begin(usize),
    /// One ends.
    End(Span),
    /// An end whose begin is not there.
    Stray,
    /// No begin and no end.
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
    /// None yet.
    pub fn new(dumps: Dumps) -> Spans {
        Spans { dumps, ..Spans::default() }
    }

    /// Takes the next record in the order of time.
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
            // What was inside of it is inside of what is around it; its own end is not there.
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
            // Its begin and its end, and what was inside; of these, its own time pays for what `records` says.
            outer.records += span.open.records + 2;
            outer.inner_records += span.records();
        }
        Step::End(span)
    }

    /// Intervals that the last record showed to have no end.
    pub fn given_up(&self) -> &[Open] {
        &self.given_up
    }

    /// The open intervals of a thread, the outermost first.
    pub fn open(&self, thread: u32) -> &[Open] {
        self.threads.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// What is still open, with its thread.
    pub fn unfinished(&self) -> impl Iterator<Item = (u32, &Open)> {
        self.threads.iter().flat_map(|(thread, stack)| stack.iter().map(|open| (*thread, open)))
    }

    /// Ends so far whose begin is not there.
    pub fn stray(&self) -> u64 {
        self.stray
    }

    /// Begins so far that turned out to have no end.
    pub fn unended(&self) -> u64 {
        self.unended
    }
}

/// Counts a record inside of the innermost interval; outer ones learn of it when that ends.
fn count(stack: &mut [Open]) {
    if let Some(inner) = stack.last_mut() {
        inner.records += 1;
    }
}
