//! A report for programs: an object per line, each with a `type`; times in nanoseconds.

use refit_instruments::analysis::{Compensation, Corrected, Doubt};
use refit_instruments::block::{Frame, Total};
use refit_instruments::definition::Definition;
use serde::Serialize;

use super::subject::Report;
use crate::commands::observe::trace;
use crate::failure::Failure;
use crate::output::Output;

/// A line.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub(super) enum Object<'a> {
    Trace(trace::Header),
    Event {
        name: String,
        class: &'a str,
        points: u64,
        count: u64,
        total_ns: f64,
        self_ns: f64,
        mean_ns: f64,
        variance_ns2: f64,
        p50_ns: u64,
        p99_ns: u64,
        longest_ns: u64,
        compensated: Option<Compensated>,
        self_compensated: Option<Compensated>,
    },
    Switch {
        processor: u32,
        from: u32,
        to: u32,
        count: u64,
        preempted: u64,
        ran_ns: f64,
        seen_by_records: bool,
    },
    Wait {
        waiter: u32,
        holder: u32,
        event: String,
        what: u64,
        count: u64,
        total_ns: f64,
        longest_ns: f64,
    },
    OffCpu {
        thread: u32,
        preempted: bool,
        /// The innermost first.
        stack: Vec<&'a Frame>,
        count: u64,
        total_ns: f64,
        longest_ns: f64,
    },
    Order {
        judged: u64,
        in_doubt: u64,
    },
    Doubt {
        #[serde(flatten)]
        doubt: Doubt,
        gap_ns: f64,
        delay_ns: f64,
    },
    Total(&'a Total),
    Definition {
        #[serde(flatten)]
        definition: &'a Definition,
        class: &'a str,
        records: u64,
        cost_ns: f64,
        cost_error_ns: f64,
    },
}

/// A time without what measuring cost.
#[derive(Serialize)]
pub(super) struct Compensated {
    ns: f64,
    error_ns: f64,
    share: f64,
    within_limit: bool,
}

impl Report<'_> {
    /// Prints all of it.
    pub(super) fn objects(&self, out: &mut Output) -> Result<(), Failure> {
        let span = |ticks: f64| self.clock().span(ticks);
        out.object(&Object::Trace(trace::header(self.trace)))?;
        for row in &self.summary.rows {
            let durations = &row.durations;
            out.object(&Object::Event {
                name: self.name(row.event),
                class: self.class(row.event),
                points: row.points,
                count: durations.count,
                total_ns: span(durations.total as f64),
                self_ns: span(durations.own as f64),
                mean_ns: span(durations.mean()),
                variance_ns2: span(span(durations.variance())),
                p50_ns: durations.quantile(0.5),
                p99_ns: durations.quantile(0.99),
                longest_ns: durations.longest,
                compensated: self.correction(&durations.corrected),
                self_compensated: self.correction(&durations.own_corrected),
            })?;
        }
        let seen_by_records = self.summary.switches.is_seen_by_records();
        for (processor, matrix) in self.summary.switches.matrices() {
            for ((from, to), cell) in matrix {
                out.object(&Object::Switch {
                    processor: *processor,
                    from: *from,
                    to: *to,
                    count: cell.count,
                    preempted: cell.preempted,
                    ran_ns: span(cell.ticks as f64),
                    seen_by_records,
                })?;
            }
        }
        for wait in &self.summary.waits {
            out.object(&Object::Wait {
                waiter: wait.waiter,
                holder: wait.holder,
                event: self.name(wait.event),
                what: wait.what,
                count: wait.count,
                total_ns: span(wait.ticks as f64),
                longest_ns: span(wait.longest as f64),
            })?;
        }
        for &((thread, stack, preempted), sum) in &self.summary.off_cpu {
            out.object(&Object::OffCpu {
                thread,
                preempted,
                stack: self.trace.stack(stack).collect(),
                count: sum.count,
                total_ns: span(sum.ticks as f64),
                longest_ns: span(sum.longest as f64),
            })?;
        }
        let order = &self.summary.order;
        out.object(&Object::Order { judged: order.judged(), in_doubt: order.count() })?;
        for doubt in order.doubts() {
            let (gap_ns, delay_ns) = (span(doubt.gap() as f64), span(doubt.delay));
            out.object(&Object::Doubt { doubt, gap_ns, delay_ns })?;
        }
        self.trace.totals().try_for_each(|total| out.object(&Object::Total(total)))
    }

    fn correction(&self, corrected: &Corrected) -> Option<Compensated> {
        Compensation::new(self.trace).is_known().then(|| Compensated {
            ns: self.clock().span(corrected.time),
            error_ns: self.clock().span(corrected.error),
            share: corrected.share,
            within_limit: corrected.share <= self.limit,
        })
    }
}
