//! Time by class and method, and what else a report says, in one pass over a trace.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use super::compensation::{Compensation, Corrected};
use super::dumps::Dumps;
use super::filter::Filter;
use super::order::Order;
use super::spans::{Span, Spans, Step};
use super::switches::Switches;
use super::waits::{Wait, Waits};
use crate::definition::Role;
use crate::read::{Clock, Error, Trace};

/// What a trace says, in sum.
#[derive(Debug)]
pub struct Summary {
    /// A row per event, those with the most time of their own first.
    pub rows: Vec<Row>,
    /// Who followed whom on which processor.
    pub switches: Switches,
    /// Who waited for whom.
    pub waits: Vec<Wait>,
    /// Where measuring may have changed the order of events.
    pub order: Order,
    /// Ends whose begin is not there.
    pub stray: u64,
    /// Begins whose end is not there.
    pub unended: u64,
    /// Records that were found out of order and further off than the reader looks.
    pub late: u64,
    /// Records looked at.
    pub records: u64,
}

/// An event in sum.
#[derive(Debug)]
pub struct Row {
    /// The event.
    pub event: u32,
    /// Records.
    pub records: u64,
    /// Records that are neither begin nor end.
    pub points: u64,
    /// Intervals.
    pub durations: Durations,
}

/// Intervals in sum. Sums are in ticks, so that nothing is rounded; how they are spread is in nanoseconds.
#[derive(Debug)]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// From begin to end.
    pub total: u64,
    /// Without the intervals inside.
    pub own: u64,
    /// Total without what measuring costs.
    pub corrected: Corrected,
    /// Own time without what measuring costs.
    pub own_corrected: Corrected,
    /// The longest, in nanoseconds.
    pub longest: u64,
    /// How many took from 2^i ns to below 2^(i+1) ns.
    pub buckets: [u64; 64],
    records: [u64; 2],
    dumped: [u64; 2],
    squares: f64,
    /// In nanoseconds, to two digits.
    spread: Histogram<u64>,
}

impl Row {
    fn new(event: u32) -> Row {
        Row { event, records: 0, points: 0, durations: Durations::new() }
    }
}

impl Durations {
    fn new() -> Durations {
        Durations {
            count: 0,
            total: 0,
            own: 0,
            corrected: Corrected::default(),
            own_corrected: Corrected::default(),
            longest: 0,
            buckets: [0; 64],
            records: [0; 2],
            dumped: [0; 2],
            squares: 0.0,
            spread: Histogram::new(2).unwrap_or_else(|_| unreachable!("2 digits are valid")),
        }
    }

    fn add(&mut self, span: &Span, clock: &Clock) {
        let ticks = span.ticks();
        let nanos = clock.span(ticks as f64).round() as u64;
        self.count += 1;
        self.total = self.total.saturating_add(ticks);
        self.own = self.own.saturating_add(span.own_ticks());
        self.longest = self.longest.max(nanos);
        self.squares += (ticks as f64) * (ticks as f64);
        self.buckets[nanos.max(1).ilog2() as usize] += 1;
        // Cannot fail: the range grows.
        let _ = self.spread.record(nanos);
        self.records = [self.records[0] + span.records(), self.records[1] + span.own_records()];
        self.dumped[0] = self.dumped[0].saturating_add(span.dumped);
        self.dumped[1] = self.dumped[1].saturating_add(span.own_dumped());
    }

    fn correct(&mut self, compensation: &Compensation) {
        self.corrected = compensation.correct(self.total, self.records[0], self.dumped[0]);
        self.own_corrected = compensation.correct(self.own, self.records[1], self.dumped[1]);
    }

    /// Mean in ticks.
    pub fn mean(&self) -> f64 {
        self.total as f64 / (self.count.max(1)) as f64
    }

    /// Variance in ticks².
    pub fn variance(&self) -> f64 {
        (self.squares / (self.count.max(1)) as f64 - self.mean() * self.mean()).max(0.0)
    }

    /// The nanoseconds that a share (0 to 1) of the intervals did not exceed, to two digits.
    pub fn quantile(&self, share: f64) -> u64 {
        self.spread.value_at_quantile(share)
    }
}

/// Goes through a trace.
///
/// # Errors
/// A file cannot be read any more.
pub fn summarize(trace: &Trace, filter: &Filter) -> Result<Summary, Error> {
    let compensation = Compensation::new(trace);
    let mut rows: HashMap<u32, Row> = HashMap::new();
    let mut spans = Spans::new(Dumps::new(trace.dumps()));
    let (mut waits, mut switches) = (Waits::default(), Switches::default());
    let mut order = Order::new(compensation.clone());
    let mut records = trace.records();
    let mut count = 0;
    for seen in records.by_ref() {
        let seen = seen?;
        let record = &seen.record;
        let event = record.what.id();
        let definition = trace.definition(event);
        let role = definition.map_or(Role::Plain, |definition| definition.role);
        let wanted = filter.wants(definition, record.thread, seen.processor, record.time);
        let step = spans.see(&seen);
        if filter.wants_place(record.thread, seen.processor, record.time) {
            switches.see(&seen, role);
        }
        order.see(&seen, role);
        match &step {
            Step::Begin(_) => {
                if let Some(open) = spans.open(record.thread).last() {
                    waits.begin(record.thread, role, open);
                }
            }
            // Who holds a thing counts for those who wait for it, whether the holder is wanted or not.
            Step::End(span) => waits.end(span, role, wanted),
            Step::Stray | Step::Other => {}
        }
        if !wanted {
            continue;
        }
        count += 1;
        let row = rows.entry(event).or_insert_with(|| Row::new(event));
        row.records += 1;
        match step {
            Step::End(span) => row.durations.add(&span, trace.clock()),
            Step::Other => row.points += 1,
            Step::Begin(_) | Step::Stray => {}
        }
    }
    switches.finish();
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.iter_mut().for_each(|row| row.durations.correct(&compensation));
    rows.sort_by_key(|row| (std::cmp::Reverse((row.durations.own, row.points)), row.event));
    let unended = spans.unended() + spans.unfinished().count() as u64;
    Ok(Summary {
        rows,
        switches,
        waits: waits.list(),
        order,
        stray: spans.stray(),
        unended,
        late: records.late(),
        records: count,
    })
}
