//! `refit swap`: requests changes and shows the outcome of each.
//!
//! A few objects get a line each with their phases. Many get a progress bar (on a terminal), lines
//! for those that failed, and a picture of the times. With `--every` the instance swaps repeatedly,
//! and the same picture grows until it ends.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::error::ErrorKind;
use indicatif::{ProgressBar, ProgressStyle};
use refit_change::{End, Phase, Report};
use refit_instance::wire::{Handover, Probation, Repeat, Swap, SwapPart};
use refit_instance::{Client, Clustering, Kind, Lines, Refusal};
use serde::Serialize;

use super::tally::Tally;
use super::{changes, rehearsal};
use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;

/// Arguments of `refit swap`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit swap 'fcm:/logs/*' partitioned --deadline 50ms
  refit swap 'fcm:/logs/*' shared partitioned --every 1ms --for 10s
  refit swap fcm:/a partitioned --together --with fcm:/b=shared
  refit swap fcm:/a partitioned --probation 10s --until 'errors == 0 && p99 < 1.2 × before'
  refit swap fcm:/logs/a partitioned --dry-run

Phases: prepare (the new object is built), forward (calls go to the old one and are tracked), block (new \
calls wait, tracked ones drain), transfer (state moves), commit, or roll back at any point before that.")]
pub(crate) struct SwapArgs {
    /// Name of an object, or a pattern
    #[arg(value_name = "OBJECT|GLOB")]
    glob: String,

    /// Implementation to swap to; with --every, several to cycle through
    #[arg(required = true, value_name = "IMPLEMENTATION")]
    implementations: Vec<String>,

    /// Deadline of each swap, after which it is rolled back
    #[arg(long, default_value = "1s", value_parser = format::parse_duration, value_name = "TIME")]
    deadline: Duration,

    /// Processors that share a representative: one, each, groups:4, or map:0,0,1,1 (default: as the
    /// implementation defines)
    #[arg(long, value_name = "WHICH")]
    reps: Option<Clustering>,

    /// Number of retries of a swap that misses its deadline, after a pause that doubles
    #[arg(long, default_value = "0", value_name = "N")]
    retries: u32,

    /// Check the condition of --until for this time, and swap back each object that violates it
    #[arg(long, requires = "until", conflicts_with_all = ["every", "together"], value_name = "TIME")]
    #[arg(value_parser = format::parse_duration)]
    probation: Option<Duration>,

    /// Condition that must hold: calls, errors, rate, mean, p50, p90, p99 or max, compared with a
    /// number, a time or `before`
    #[arg(long, requires = "probation", value_name = "CONDITION")]
    until: Option<String>,

    /// Swap all objects as one change: no request sees a mix of old and new ones, and if one
    /// cannot be swapped, none is
    #[arg(long, conflicts_with = "every")]
    together: bool,

    /// Another swap to make in the same change
    #[arg(long, requires = "together", value_name = "OBJECT|GLOB=IMPLEMENTATION")]
    #[arg(value_parser = parse_part)]
    with: Vec<SwapPart>,

    /// Swap one object after the other at this interval, again and again, until Ctrl-C
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME")]
    every: Option<Duration>,

    /// End after this time
    #[arg(long = "for", requires = "every", value_parser = format::parse_duration)]
    #[arg(value_name = "TIME")]
    time: Option<Duration>,

    /// Change nothing: show the possible transfer protocols, the chosen one, and a trial's time
    /// transfer, which blocks calls
    #[arg(long, conflicts_with = "every")]
    dry_run: bool,

    /// Transfer state by this protocol instead of the best that both implementations support
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,

    /// Do not transfer state, e.g. if the old implementation cannot export it; allowed only where
    /// the state is a hint, as in a replacement policy
    #[arg(long, conflicts_with_all = ["protocol", "empty_state"])]
    without_state: bool,

    /// Begin with an empty state: LOSES what the object holds; allowed only where the interface
    /// defines an empty state
    #[arg(long, conflicts_with = "protocol")]
    empty_state: bool,

    /// Select only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<String>,
}

/// Reads `fcm:/a=shared`. Names can have an `=` in them, implementations cannot.
fn parse_part(text: &str) -> Result<SwapPart, String> {
    let wrong = || format!("`{text}` is not OBJECT=IMPLEMENTATION, e.g. fcm:/a=shared");
    let (glob, implementation) = text.rsplit_once('=').ok_or_else(wrong)?;
    if glob.is_empty() || implementation.is_empty() {
        return Err(wrong());
    }
    Ok(SwapPart { glob: glob.to_owned(), implementation: implementation.to_owned() })
}

/// Up to this many objects get a line each.
pub(crate) const FEW: u64 = 20;

/// The interval at which the picture is drawn.
const DRAW: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    report: &'a Report,
}

/// Swaps everything that matches, on every instance that has it.
pub(crate) fn run(args: &SwapArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let request = request(args)?;
    let operation = format!("swap {} to {}", args.glob, request.implementation);
    let live = instances::live(&operation, only)?;
    instances::unambiguous(&operation, &live, &args.glob, args.mount.as_deref())?;
    let begun = begin(&live, |client| client.swap(&request))?;
    if request.repeat.is_some() {
        return again_and_again(&operation, begun, out);
    }
    let expected: u64 = begun.iter().filter_map(|(_, lines)| lines.expected()).sum();
    let tally = follow(begun, expected, "swapped", out)?;
    if !out.json() && expected > FEW {
        tally.print(out)?;
    }
    judge(operation, &tally, expected, out)
}

/// Shows changes as they end: a line each if they are few.
pub(crate) fn follow(
    begun: Begun,
    expected: u64,
    done: &str,
    out: &mut Output,
) -> Result<Tally, Failure> {
    let few = expected <= FEW;
    let mut tally = Tally::default();
    let bar = progress(expected, done, out);
    for (pid, lines) in begun {
        for report in lines {
            show(pid, &report?, few, &mut tally, &bar, out)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(tally)
}

fn request(args: &SwapArgs) -> Result<Swap, Failure> {
    let mut implementations = args.implementations.iter().cloned();
    let first = implementations.next().unwrap_or_default();
    let others: Vec<String> = implementations.collect();
    if args.every.is_none() && !others.is_empty() {
        let text = "several implementations need --every TIME";
        return Err(Failure::usage(ErrorKind::MissingRequiredArgument, text));
    }
    let repeat = args.every.map(|every| Repeat {
        others,
        every_us: u64::try_from(every.as_micros()).unwrap_or(u64::MAX),
        for_ms: args.time.map(millis),
    });
    let deadline_ms = Some(millis(args.deadline));
    Ok(Swap {
        deadline_ms,
        repeat,
        reps: args.reps.as_ref().map(ToString::to_string),
        retries: args.retries,
        probation: args
            .probation
            .zip(args.until.clone())
            .map(|(time, until)| Probation { ms: millis(time), until }),
        together: args.together,
        with: args.with.clone(),
        dry_run: args.dry_run,
        mount: args.mount.clone(),
        protocol: args.protocol.clone(),
        handover: match (args.without_state, args.empty_state) {
            (true, _) => Handover::WithoutState,
            (_, true) => Handover::EmptyState,
            _ => Handover::Transfer,
        },
        ..Swap::once(&args.glob, first)
    })
}

/// Shows repeated swaps until the instances have ended them, or Ctrl-C; prints the totals in both
/// cases.
fn again_and_again(operation: &str, begun: Begun, out: &mut Output) -> Result<(), Failure> {
    let tally = until_interrupted(begun, false, out)?;
    if !out.json() {
        tally.print(out)?;
    }
    if tally.total() == 0 {
        return Err(Failure::new(operation, "nothing was swapped in that time", "see `refit ls`"));
    }
    let done = tally.total();
    judge(operation.to_owned(), &tally, done, out)
}

/// Follows changes until the instances have ended, or Ctrl-C: a line each if they are `few`,
/// otherwise a picture that grows.
pub(crate) fn until_interrupted(
    begun: Begun,
    few: bool,
    out: &mut Output,
) -> Result<Tally, Failure> {
    let interrupted = interruption()?;
    let (sender, reports) = mpsc::channel::<(u32, Result<Report, Refusal>)>();
    for (pid, lines) in begun {
        let sender = sender.clone();
        // The thread ends with the instance's answer, or with this process, which the instance
        // detects.
        thread::spawn(move || {
            for line in lines {
                if sender.send((pid, line)).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut tally = Tally::default();
    let hidden = few || out.json();
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let mut drawn = Instant::now();
    while !interrupted.load(Ordering::Relaxed) {
        match reports.recv_timeout(DRAW) {
            Ok((pid, report)) => show(pid, &report?, few, &mut tally, &bar, out)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if drawn.elapsed() >= DRAW {
            drawn = Instant::now();
            let lines = tally.times.lines().join("\n  ");
            bar.set_message(format!("{}; {}\n  {lines}", tally.ends(), tally.calls()));
            bar.tick();
            if out.json() {
                out.flush()?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(tally)
}

/// Returns the result of the command when the changes have ended; reports expected changes that are
/// missing.
pub(crate) fn judge(
    operation: String,
    tally: &Tally,
    expected: u64,
    out: &mut Output,
) -> Result<(), Failure> {
    let ended = expected.saturating_sub(tally.total());
    if ended > 0 && tally.total() > 0 && expected > FEW && !out.json() {
        out.line(&format!("{} ended before the change", format::counted(ended, "object")))?;
    }
    if tally.total() == 0 && expected > 0 {
        return Err(Failure::new(
            operation,
            "the object ended before the change",
            "see `refit ls`",
        ));
    }
    if tally.failed() == 0 {
        return Ok(());
    }
    let what = if tally.rehearsed > 0 { "would not commit" } else { "did not commit" };
    let failed = format!("{} of {} {what}", tally.failed(), tally.total());
    Err(Failure::new(operation, failed, "these objects are unchanged; see the reasons above"))
}

/// The answers of the instances that execute the request.
pub(crate) type Begun = Vec<(u32, Lines<Report>)>;

/// Begins on every instance that has such objects. An instance that has none is skipped, unless no
/// instance has any.
pub(crate) fn begin(
    live: &[Live],
    ask: impl Fn(&Client) -> Result<Lines<Report>, Refusal>,
) -> Result<Begun, Failure> {
    let mut begun = Vec::new();
    let mut refusals: Vec<Refusal> = Vec::new();
    for one in live {
        match ask(&one.client) {
            Ok(lines) => begun.push((one.pid, lines)),
            Err(refusal) if refusal.kind == Kind::Unknown => refusals.push(refusal),
            Err(refusal) if one.has_ended(&refusal) => {
                say!("refit: instance {} ended during the change", one.pid);
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
    if !begun.is_empty() {
        return Ok(begun);
    }
    // The refusal of an instance that has the object but not the implementation explains more than
    // that of one without the object.
    refusals.sort_by_key(|r| r.obstacle == "no such object");
    match refusals.into_iter().next() {
        Some(refusal) => Err(refusal.into()),
        None => Ok(begun),
    }
}

/// Counts a report and prints it, if it is one of few or needs to be seen.
fn show(
    instance: u32,
    report: &Report,
    few: bool,
    tally: &mut Tally,
    bar: &ProgressBar,
    out: &mut Output,
) -> Result<(), Failure> {
    tally.add(report);
    if out.json() {
        out.object(&Line { instance, report })?;
    } else if few || !report.committed() {
        bar.suspend(|| lines(report).iter().try_for_each(|line| out.line(line)))?;
    } else {
        return Ok(());
    }
    if few { out.flush() } else { Ok(()) }
}

/// Returns a change for people: its outcome, its duration and phases, and the name last.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let change = &report.change;
    let phases: Vec<String> = report
        .phases
        .iter()
        .map(|p| format!("{} {}", phase(&change.mechanism, p.phase), format::nanos(p.ns)))
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
    if report.attempts > 1 {
        lines.push(format!("             after {} attempts", report.attempts));
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
        if !blocker.waits_for.is_empty() {
            let waits_for = &blocker.waits_for;
            lines.push(format!("             it waits for {waits_for}, which is being swapped"));
        }
    }
    rehearsal::explain(report, &mut lines);
    lines
}

/// Returns the word for a phase of a change.
pub(crate) fn phase(mechanism: &str, phase: Phase) -> &'static str {
    match phase {
        Phase::Prepare => "prepare",
        Phase::Install if mechanism != "swap" => "install",
        Phase::Install => "forward",
        Phase::Quiesce => "block",
        Phase::Transfer => "transfer",
        Phase::Commit => "commit",
        Phase::RollBack => "roll back",
    }
}

fn progress(expected: u64, done: &str, out: &Output) -> ProgressBar {
    if expected <= FEW || out.json() {
        return ProgressBar::hidden();
    }
    // Draws on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(expected);
    let template = format!("{{bar:40}} {{pos}}/{{len}} {done}, {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

pub(crate) fn millis(d: Duration) -> u64 {
    // A deadline below the unit of the API must not become no deadline.
    u64::try_from(d.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}
