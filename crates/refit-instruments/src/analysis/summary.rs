//! A summary of a trace by class and method, for reports, in one pass over the trace.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use super::compensation::{Compensation, Corrected};
use super::dumps::Dumps;
use super::filter::Filter;
use super::off_cpu::{OffCpuKey, OffCpuSum, OffCpuSums, OffCpus};
use super::order::Order;
use super::spans::{Span, Spans, Step};
use super::switches::Switches;
use super::waits::{Wait, Waits};
use crate::definition::Role;
use crate::read::{Clock, Error, Trace};

/// The summary of a trace.
#[derive(Debug)]
pub struct Summary {
    /// A row per event, sorted by own time in descending order.
    pub rows: Vec<Row>,
    /// The context switches on each processor.
    pub switches: Switches,
    /// The waits of threads for one another.
    pub waits: Vec<Wait>,
    /// The time off the processors, of threads whose stacks were recorded, the longest first.
    pub off_cpu: Vec<(OffCpuKey, OffCpuSum)>,
    /// The places where measuring may have changed the order of events.
    pub order: Order,
    /// The number of ends without a begin.
    pub stray: u64,
    /// The number of begins without an end.
    pub unended: u64,
    /// The number of records that were out of order by more than the window of the reader.
    pub late: u64,
    /// The number of selected records.
    pub records: u64,
}

/// The summary of an event.
#[derive(Debug)]
pub struct Row {
    /// The event.
    pub event: u32,
    /// The number of records.
    pub records: u64,
    /// The number of records that are neither a begin nor an end.
    pub points: u64,
    /// The durations of its intervals.
    pub durations: Durations,
}

/// A summary of intervals. Sums are in ticks, so that nothing is rounded; the distribution is in
/// nanoseconds.
#[derive(Debug)]
pub struct Durations {
    /// The number of intervals.
    pub count: u64,
    /// The time from begin to end.
    pub total: u64,
    /// The time without the intervals inside.
    pub own: u64,
    /// The total time without the cost of measuring.
    pub corrected: Corrected,
    /// The own time without the cost of measuring.
    pub own_corrected: Corrected,
    /// The longest duration, in nanoseconds.
    pub longest: u64,
    /// The number of intervals that took from 2^i ns to below 2^(i+1) ns.
    pub buckets: [u64; 64],
    records: [u64; 2],
    dumped: [u64; 2],
    squares: f64,
    /// The distribution in nanoseconds, with two significant digits.
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
        // Cannot fail, since the range grows.
        let _ = self.spread.record(nanos);
        self.records = [self.records[0] + span.records(), self.records[1] + span.own_records()];
        self.dumped[0] = self.dumped[0].saturating_add(span.dumped);
        self.dumped[1] = self.dumped[1].saturating_add(span.own_dumped());
    }

    fn correct(&mut self, compensation: &Compensation) {
        self.corrected = compensation.correct(self.total, self.records[0], self.dumped[0]);
        self.own_corrected = compensation.correct(self.own, self.records[1], self.dumped[1]);
    }

    /// Returns the mean, in ticks.
    pub fn mean(&self) -> f64 {
        self.total as f64 / (self.count.max(1)) as f64
    }

    /// Returns the variance, in ticks².
    pub fn variance(&self) -> f64 {
        (self.squares / (self.count.max(1)) as f64 - self.mean() * self.mean()).max(0.0)
    }

    /// Returns the nanoseconds that a share (0 to 1) of the intervals did not exceed, with two
    /// significant digits.
    pub fn quantile(&self, share: f64) -> u64 {
        self.spread.value_at_quantile(share)
    }
}

/// Summarizes the selected part of a trace.
///
/// # Errors
///
/// A file can no longer be read.
pub fn summarize(trace: &Trace, filter: &Filter) -> Result<Summary, Error> {
    let compensation = Compensation::new(trace);
    let mut rows: HashMap<u32, Row> = HashMap::new();
    let mut spans = Spans::new(Dumps::new(trace.dumps()));
    let (mut waits, mut switches) = (Waits::default(), Switches::default());
    let mut order = Order::new(compensation.clone());
    let (mut off, mut off_sums) = (OffCpus::default(), OffCpuSums::default());
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
        let ended = off.see(&seen, role);
        if filter.wants_place(record.thread, seen.processor, record.time) {
            switches.see(&seen, role);
            ended.iter().for_each(|one| off_sums.add(one));
        }
        order.see(&seen, role);
        match &step {
            Step::Begin(_) => {
                if let Some(open) = spans.open(record.thread).last() {
                    waits.begin(record.thread, role, open);
                }
            }
            // The holder of an object is needed for those who wait for it, whether or not the
            // holder is selected.
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
        off_cpu: off_sums.list(),
        order,
        stray: spans.stray(),
        unended,
        late: records.late(),
        records: count,
    })
}
