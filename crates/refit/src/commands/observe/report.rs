//! `refit report`: summarizes a trace.

mod objects;
mod off_cpu;
mod subject;

use std::path::PathBuf;

use clap::Args;
use clap::builder::ValueHint;
use refit_instruments::analysis::{self, Compensation, Corrected, Row, Summary};
use refit_instruments::definition::Definition;

use self::objects::Object;
use self::subject::Report;
use super::trace::{self, Selection};
use crate::failure::Failure;
use crate::format;
use crate::histogram;
use crate::output::Output;
use crate::table::{Align, Table};

/// The number of histograms that are shown.
const HISTOGRAMS: usize = 6;
/// The number of rows in the table of waits.
const WAITS: usize = 20;
/// The number of places with doubtful order that are shown.
const DOUBTS: usize = 10;
/// The number of threads in a matrix.
const THREADS: usize = 12;

/// Arguments of `refit report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit report water.trace
  refit report water.trace --class FileCache --time 1s..1500ms
  refit report water.trace --classes
  refit report water.trace --json | jq .self_ns

Times are shown as measured, and compensated for the cost of recording if the trace contains it.")]
pub(crate) struct ReportArgs {
    /// Trace to summarize; for a trace of several files, name the first
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    selection: Selection,

    /// Maximum share of a time to subtract as the cost of recording, in percent
    #[arg(long, default_value = "20", value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    limit: u8,

    /// Show the instrumented classes and methods, and the cost of recording them, instead of times
    #[arg(long)]
    classes: bool,
}

/// Prints the report.
pub(crate) fn run(args: &ReportArgs, out: &mut Output) -> Result<(), Failure> {
    let trace = trace::open("report", &args.files)?;
    let filter = args.selection.filter(&trace);
    let summary = analysis::summarize(&trace, &filter).map_err(|e| trace::refusal("report", &e))?;
    let report = Report { trace: &trace, summary: &summary, limit: f64::from(args.limit) / 100.0 };
    match (args.classes, out.json()) {
        (true, json) => report.classes(json, out),
        (false, true) => report.objects(out),
        (false, false) => report.lines(out),
    }
}

impl Report<'_> {
    fn lines(&self, out: &mut Output) -> Result<(), Failure> {
        for line in trace::header(self.trace).lines() {
            out.line(&line)?;
        }
        self.pairing(out)?;
        self.times(out)?;
        self.points(out)?;
        self.histograms(out)?;
        self.switches(out)?;
        self.waits(out)?;
        self.off_cpu(out)?;
        self.order(out)?;
        self.totals(out)
    }

    /// Prints the records that do not fit together.
    fn pairing(&self, out: &mut Output) -> Result<(), Failure> {
        let Summary { stray, unended, late, .. } = self.summary;
        if *stray + *unended > 0 {
            let (ends, begins) =
                (format::counted(*stray, "end"), format::counted(*unended, "begin"));
            out.line(&format!("unpaired    {ends} without a begin, {begins} without an end"))?;
        }
        if *late > 0 {
            out.line(&format!(
                "disorder    {} found after records of a later time",
                format::counted(*late, "record")
            ))?;
        }
        Ok(())
    }

    fn times(&self, out: &mut Output) -> Result<(), Failure> {
        let rows = self.summary.rows.iter().filter(|row| row.durations.count > 0);
        let mut classes: Vec<(&str, Vec<&Row>)> = Vec::new();
        for row in rows {
            let class = self.class(row.event);
            match classes.iter_mut().find(|(name, _)| *name == class) {
                Some((_, rows)) => rows.push(row),
                None => classes.push((class, vec![row])),
            }
        }
        if classes.is_empty() {
            return Ok(());
        }
        let own = |rows: &[&Row]| {
            rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.durations.own))
        };
        classes.sort_by_key(|(_, rows)| std::cmp::Reverse(own(rows)));
        let titles = ["COUNT", "TOTAL", "SELF", "MEAN", "MEDIAN", "99 %", "COMPENSATED", "ERROR"];
        let mut columns: Vec<_> = titles.iter().map(|title| (*title, Align::Right)).collect();
        columns.push(("CLASS AND METHOD", Align::Left));
        let mut table = Table::new(&columns);
        for (class, rows) in &classes {
            let count = rows.iter().map(|row| row.durations.count).sum();
            let mut cells = vec![String::new(); columns.len()];
            cells[0] = format::count(count);
            cells[2] = self.nanos(own(rows) as f64);
            cells[8] = (*class).to_owned();
            table.row(cells);
            rows.iter().for_each(|row| table.row(self.cells(row)));
        }
        out.line("")?;
        table.lines().iter().try_for_each(|line| out.line(line))
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let durations = &row.durations;
        let (compensated, error) = self.compensated(&durations.corrected);
        let name = self.name(row.event);
        let method = name.rsplit_once("::").map_or(name.as_str(), |(_, method)| method);
        vec![
            format::count(durations.count),
            self.nanos(durations.total as f64),
            self.nanos(durations.own as f64),
            self.nanos(durations.mean()),
            format::nanos(durations.quantile(0.5)),
            format::nanos(durations.quantile(0.99)),
            compensated,
            error,
            format!("  {method}"),
        ]
    }

    /// Returns the compensated time and its error, or the reason that there is none.
    fn compensated(&self, corrected: &Corrected) -> (String, String) {
        if !Compensation::new(self.trace).is_known() {
            return ("-".into(), String::new());
        }
        if corrected.share > self.limit {
            return (format!("{:.0} % is cost", corrected.share * 100.0), String::new());
        }
        (self.nanos(corrected.time), format!("± {}", self.nanos(corrected.error)))
    }

    fn points(&self, out: &mut Output) -> Result<(), Failure> {
        let mut table = Table::new(&[("COUNT", Align::Right), ("EVENT", Align::Left)]);
        let rows: Vec<_> = self.summary.rows.iter().filter(|row| row.points > 0).collect();
        for row in &rows {
            table.row(vec![format::count(row.points), self.name(row.event)]);
        }
        print(out, "", !rows.is_empty(), &table)
    }

    fn histograms(&self, out: &mut Output) -> Result<(), Failure> {
        let rows = self.summary.rows.iter().filter(|row| row.durations.count > 1);
        for row in rows.take(HISTOGRAMS) {
            out.line("")?;
            out.line(&self.name(row.event))?;
            let lines = histogram::bars(&row.durations.buckets, |i| format::nanos(1 << i));
            lines.iter().try_for_each(|line| out.line(line))?;
        }
        Ok(())
    }

    fn switches(&self, out: &mut Output) -> Result<(), Failure> {
        let how = if self.summary.switches.is_seen_by_records() {
            "Threads that recorded after one another (no context switches were recorded)"
        } else {
            "Context switches"
        };
        for (processor, matrix) in self.summary.switches.matrices() {
            let mut counts = std::collections::BTreeMap::<u32, u64>::new();
            for ((from, to), cell) in matrix {
                *counts.entry(*from).or_default() += cell.count;
                *counts.entry(*to).or_default() += cell.count;
            }
            let mut threads: Vec<_> = counts.into_iter().collect();
            threads.sort_by_key(|(thread, count)| (std::cmp::Reverse(*count), *thread));
            let left_out = threads.len().saturating_sub(THREADS);
            let threads: Vec<u32> = threads.into_iter().take(THREADS).map(|(id, _)| id).collect();
            let numbers: Vec<String> = (1..=threads.len()).map(|n| format!("→{n}")).collect();
            let mut columns: Vec<(&str, Align)> = vec![("", Align::Right)];
            columns.extend(numbers.iter().map(|number| (number.as_str(), Align::Right)));
            columns.push(("FROM", Align::Left));
            let mut table = Table::new(&columns);
            for (n, from) in threads.iter().enumerate() {
                let mut cells = vec![format!("{}", n + 1)];
                cells.extend(threads.iter().map(|to| {
                    matrix
                        .get(&(*from, *to))
                        .map_or_else(|| "·".into(), |cell| format::count(cell.count))
                }));
                cells.push(self.thread(*from));
                table.row(cells);
            }
            let rest = if left_out > 0 {
                format!(", without {left_out} that switch less often")
            } else {
                String::new()
            };
            print(out, &format!("{how}, processor {processor}{rest}"), true, &table)?;
        }
        Ok(())
    }

    fn waits(&self, out: &mut Output) -> Result<(), Failure> {
        let mut table = Table::new(&[
            ("COUNT", Align::Right),
            ("TOTAL", Align::Right),
            ("LONGEST", Align::Right),
            ("WAITER", Align::Left),
            ("WAITS FOR", Align::Left),
            ("AT", Align::Left),
        ]);
        for wait in self.summary.waits.iter().take(WAITS) {
            table.row(vec![
                format::count(wait.count),
                self.nanos(wait.ticks as f64),
                self.nanos(wait.longest as f64),
                self.thread(wait.waiter),
                self.thread(wait.holder),
                format!("{} {:#x}", self.name(wait.event), wait.what),
            ]);
        }
        print(out, "Waits for other threads", !self.summary.waits.is_empty(), &table)
    }

    /// Prints the places where measuring may have changed the order of events.
    fn order(&self, out: &mut Output) -> Result<(), Failure> {
        let order = &self.summary.order;
        let title = format!(
            "Order in doubt: {} of {} that followed an access on another processor",
            format::count(order.count()),
            format::counted(order.judged(), "access"),
        );
        let mut table = Table::new(&[
            ("GAP", Align::Right),
            ("DELAY", Align::Right),
            ("FIRST", Align::Left),
            ("THEN", Align::Left),
            ("AT", Align::Left),
        ]);
        for doubt in order.doubts().iter().take(DOUBTS) {
            table.row(vec![
                self.nanos(doubt.gap() as f64),
                self.nanos(doubt.delay),
                self.thread(doubt.first.thread),
                self.thread(doubt.second.thread),
                format!("{} {:#x}", self.name(doubt.second.event), doubt.what),
            ]);
        }
        if order.count() == 0 && order.judged() > 0 {
            out.line("")?;
            return out.line(&title);
        }
        print(out, &title, order.count() > 0, &table)
    }

    /// Prints all definitions by class, with the number of their records and the cost of these.
    fn classes(&self, json: bool, out: &mut Output) -> Result<(), Failure> {
        let compensation = Compensation::new(self.trace);
        let mut definitions: Vec<&Definition> = self.trace.definitions().collect();
        definitions.sort_by_key(|definition| (definition.class(), &definition.name));
        let titles = ["RECORDS", "COST", "ERROR", "MANAGER", "ROLE", "CLASS AND METHOD"];
        let align = |n| if n < 3 { Align::Right } else { Align::Left };
        let columns: Vec<_> = titles.iter().enumerate().map(|(n, t)| (*t, align(n))).collect();
        let mut table = Table::new(&columns);
        for definition in definitions {
            let row = self.summary.rows.iter().find(|row| row.event == definition.id);
            let records = row.map_or(0, |row| row.records);
            let (cost, error) = compensation.price(records);
            if json {
                out.object(&Object::Definition {
                    definition,
                    class: definition.class(),
                    records,
                    cost_ns: self.clock().span(cost),
                    cost_error_ns: self.clock().span(error),
                })?;
                continue;
            }
            let (cost, error) = match compensation.is_known() {
                true => (self.nanos(cost), format!("± {}", self.nanos(error))),
                false => ("-".into(), String::new()),
            };
            let role = serde_json::to_value(definition.role).ok();
            let role = role.as_ref().and_then(|role| role.as_str()).unwrap_or_default().to_owned();
            let name = definition.name.clone();
            table.row(vec![
                format::count(records),
                cost,
                error,
                definition.manager.clone(),
                role,
                name,
            ]);
        }
        if json { Ok(()) } else { table.lines().iter().try_for_each(|line| out.line(line)) }
    }

    fn totals(&self, out: &mut Output) -> Result<(), Failure> {
        let mut table = Table::new(&[
            ("COUNT", Align::Right),
            ("SUM", Align::Right),
            ("KIND", Align::Left),
            ("NAME", Align::Left),
        ]);
        for total in self.trace.totals() {
            let sum = match total.instrument.as_str() {
                "timer" => self.nanos(total.sum as f64),
                _ => format::count(total.sum),
            };
            let name = format!("{} {}", total.manager, total.name);
            table.row(vec![format::count(total.count), sum, total.instrument.clone(), name]);
        }
        print(out, "Counters and timers", self.trace.totals().next().is_some(), &table)
    }
}

/// Prints a table under a title, if there is anything in it.
fn print(out: &mut Output, title: &str, any: bool, table: &Table) -> Result<(), Failure> {
    if !any {
        return Ok(());
    }
    out.line("")?;
    if !title.is_empty() {
        out.line(title)?;
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}
