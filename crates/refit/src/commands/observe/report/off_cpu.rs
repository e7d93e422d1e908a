//! The part of a report about threads that were off the processors.

use std::collections::{BTreeMap, BTreeSet};

use refit_instruments::analysis::OffCpuSum;
use refit_instruments::block::Frame;

use super::print;
use super::subject::Report;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;
use crate::table::{Align, Table};

/// The number of stacks that are shown.
const STACKS: usize = 10;
/// The number of functions of a stack that are shown.
const FUNCTIONS: usize = 12;

/// The times on one stack, of all threads that stood on it.
#[derive(Default)]
struct Together {
    sum: OffCpuSum,
    threads: BTreeSet<u32>,
}

impl Report<'_> {
    /// Prints on which stacks threads stood while they had no processor.
    pub(super) fn off_cpu(&self, out: &mut Output) -> Result<(), Failure> {
        let mut by_stack: BTreeMap<(u32, bool), Together> = BTreeMap::new();
        for &((thread, stack, preempted), sum) in &self.summary.off_cpu {
            let together = by_stack.entry((stack, preempted)).or_default();
            together.threads.insert(thread);
            let all = &mut together.sum;
            all.count += sum.count;
            all.ticks = all.ticks.saturating_add(sum.ticks);
            all.longest = all.longest.max(sum.longest);
        }
        let mut rows: Vec<_> = by_stack.into_iter().collect();
        rows.sort_by_key(|(key, together)| (std::cmp::Reverse(together.sum.ticks), *key));
        let mut table = Table::new(&[
            ("TOTAL", Align::Right),
            ("COUNT", Align::Right),
            ("LONGEST", Align::Right),
            ("WHY", Align::Left),
            ("THREAD AND STACK", Align::Left),
        ]);
        for ((stack, preempted), Together { sum, threads }) in rows.iter().take(STACKS) {
            table.row(vec![
                self.nanos(sum.ticks as f64),
                format::count(sum.count),
                self.nanos(sum.longest as f64),
                if *preempted { "preempted" } else { "waits" }.to_owned(),
                self.threads(threads),
            ]);
            for line in self.functions(*stack) {
                let mut cells = vec![String::new(); 4];
                cells.push(format!("  {line}"));
                table.row(cells);
            }
        }
        let rest = rows.len().saturating_sub(STACKS);
        let rest = if rest > 0 { format!(", without {rest} shorter ones") } else { String::new() };
        print(out, &format!("Off the processors, by stack{rest}"), !rows.is_empty(), &table)
    }

    fn threads(&self, threads: &BTreeSet<u32>) -> String {
        match threads.first() {
            Some(first) if threads.len() == 1 => self.thread(*first),
            Some(first) => format!("{} and {} more", self.thread(*first), threads.len() - 1),
            None => String::new(),
        }
    }

    /// Returns a line for each function of a stack, the innermost first.
    fn functions(&self, stack: u32) -> Vec<String> {
        let mut lines: Vec<String> = self.trace.stack(stack).flat_map(lines).collect();
        let more = lines.len().saturating_sub(FUNCTIONS);
        if more > 1 {
            lines.truncate(FUNCTIONS);
            lines.push(format!("… {more} more"));
        }
        lines
    }
}

fn lines(frame: &Frame) -> Vec<String> {
    let sources = frame.functions.iter().map(|function| function.source.as_deref());
    let sources = sources.chain(std::iter::repeat(None));
    let line = |(label, source): (String, Option<&str>)| match source {
        Some(source) => format!("{label} {source}"),
        None => label,
    };
    frame.labels().into_iter().zip(sources).map(line).collect()
}
