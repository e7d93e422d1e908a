//! `refit swap`: ask for changes and show how each of them went.
//!
//! A few objects get a line each with their phases. Many get a progress bar (if somebody watches), lines for
//! those that failed, and a picture of the times.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use refit_change::{End, Phase, Report};
use refit_instance::wire::Swap;
use refit_instance::{Kind, Lines, Refusal};
use serde::Serialize;

use crate::cli::SwapArgs;
use crate::commands::changes;
use crate::failure::Failure;
use crate::format;
use crate::histogram::Times;
use crate::instances::{self, Live};
use crate::output::Output;

/// Up to this many objects get a line each.
const FEW: u64 = 20;

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    report: &'a Report,
}

/// What became of all of them.
struct Tally {
    few: bool,
    expected: u64,
    times: Times,
    committed: u64,
    failed: u64,
    forwarded: u64,
    blocked: u64,
}

/// Swaps everything that matches, on every instance that has it.
pub(crate) fn run(args: &SwapArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let asked = format!("swap {} to {}", args.glob, args.implementation);
    let live = instances::live(&asked, only)?;
    let request = Swap {
        glob: args.glob.clone(),
        implementation: args.implementation.clone(),
        deadline_ms: Some(millis(args.deadline)),
    };
    let begun = begin(&live, &request)?;
    let expected: u64 = begun.iter().filter_map(|(_, lines)| lines.expected()).sum();
    let mut tally = Tally {
        few: expected <= FEW,
        expected,
        times: Times::new(),
        committed: 0,
        failed: 0,
        forwarded: 0,
        blocked: 0,
    };
    let bar = progress(expected, out);
    for (pid, lines) in begun {
        for report in lines {
            tally.take(pid, &report?, &bar, out)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if !out.json() && !tally.few {
        tally.print(out)?;
    }
    let done = tally.committed + tally.failed;
    if done == 0 && expected > 0 {
        return Err(Failure::new(asked, "it ended before its turn came", "see `refit ls`"));
    }
    if tally.failed > 0 {
        let failed = format!("{} of {done} did not commit", tally.failed);
        return Err(Failure::new(
            asked,
            failed,
            "the objects serve as before; see the reasons above",
        ));
    }
    Ok(())
}

/// Begins on every instance that has such objects; an instance that has none is in nobody's way, unless none
/// of them has any.
fn begin(live: &[Live], request: &Swap) -> Result<Vec<(u32, Lines<Report>)>, Failure> {
    let mut begun = Vec::new();
    let mut refusals: Vec<Refusal> = Vec::new();
    for Live { pid, client } in live {
        match client.swap(request) {
            Ok(lines) => begun.push((*pid, lines)),
            Err(refusal) if refusal.kind == Kind::Unknown => refusals.push(refusal),
            Err(refusal) => return Err(refusal.into()),
        }
    }
    if !begun.is_empty() {
        return Ok(begun);
    }
    // One that has the object but not the implementation says more than one that has nothing.
    refusals.sort_by_key(|r| r.obstacle == "no such object");
    match refusals.into_iter().next() {
        Some(refusal) => Err(refusal.into()),
        None => Ok(begun),
    }
}

impl Tally {
    fn take(
        &mut self,
        instance: u32,
        report: &Report,
        bar: &ProgressBar,
        out: &mut Output,
    ) -> Result<(), Failure> {
        self.times.add(report.total_ns());
        self.forwarded += report.forwarded;
        self.blocked += report.blocked;
        *(if report.committed() { &mut self.committed } else { &mut self.failed }) += 1;
        if out.json() {
            out.object(&Line { instance, report })?;
        } else if self.few || !report.committed() {
            bar.suspend(|| lines(report).iter().try_for_each(|line| out.line(line)))?;
        } else {
            return Ok(());
        }
        if self.few { out.flush() } else { Ok(()) }
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        out.line(&format!(
            "{} swapped, {} not{}; {}",
            format::counted(self.committed, "object"),
            format::count(self.failed),
            match self.expected - self.committed - self.failed {
                0 => String::new(),
                gone => format!(", {} ended before their turn came", format::count(gone)),
            },
            self.times.summary()
        ))?;
        out.line(&format!(
            "{} forwarded, {} had to wait",
            format::counted(self.forwarded, "call"),
            format::count(self.blocked)
        ))?;
        self.times.lines().iter().try_for_each(|line| out.line(line))
    }
}

/// A change for people: how it ended, how long it took and where, and the name last.
fn lines(report: &Report) -> Vec<String> {
    let change = &report.change;
    let phases: Vec<String> = report
        .phases
        .iter()
        .map(|p| format!("{} {}", phase(p.phase), format::nanos(p.ns)))
        .collect();
    let mut lines = vec![format!(
        "{:<11}  {:>8}  {}  {} → {}  {}",
        changes::end(&report.end),
        format::nanos(report.total_ns()),
        phases.join(", "),
        change.from,
        change.to,
        change.target,
    )];
    if let End::RolledBack(why) | End::Refused(why) = &report.end {
        lines.push(format!("             {why}"));
    }
    for blocker in &report.blockers {
        lines.push(format!(
            "             in the way: thread {} ({}) in {} of {}, for {}",
            blocker.tid,
            blocker.thread,
            blocker.method,
            blocker.object,
            format::nanos(blocker.age_us.saturating_mul(1000)),
        ));
    }
    lines
}

/// The word for a phase of a swap.
pub(crate) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Prepare => "prepare",
        Phase::Install => "forward",
        Phase::Quiesce => "block",
        Phase::Transfer => "transfer",
        Phase::Commit => "commit",
        Phase::RollBack => "roll back",
    }
}

fn progress(expected: u64, out: &Output) -> ProgressBar {
    if expected <= FEW || out.json() {
        return ProgressBar::hidden();
    }
    // Draws on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(expected);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} swapped, {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn millis(d: Duration) -> u64 {
    // A deadline below the unit of the API is not no deadline.
    u64::try_from(d.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}
