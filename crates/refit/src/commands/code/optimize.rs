//! `refit optimize`: lays out the hot code of a running program anew, and keeps that if it pays.

use std::time::Duration;

use clap::Args;
use refit_optimize::interval::Interval;
use refit_optimize::layout::Figures;
use refit_optimize::prove::Proof;
use refit_optimize::{Error, Options, Outcome, Step, Verdict, optimize};
use refit_probe::spec::{NotUnderstood, Spec};
use refit_splice::process::Program;
use refit_splice::remains::{self, Which};
use serde::Serialize;

use super::probe::tell_kept;
use super::program::{failure, open, open_to_clean};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Arguments of `refit optimize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit optimize -p 4711
  refit optimize -p 4711 --progress 'uprobe:mariadbd:*dispatch_command*'
  refit optimize -p 4711 --undo

Counts how often each block of the hot functions runs, copies the hot blocks in an order in which most jumps fall through, and leads the program there. \
Control enters and leaves the copies many times while the program's progress for its processor time is measured; the copies stay only if they pay. \
They stay after refit has ended, and `refit optimize --undo` or `refit repair` takes them out.")]
pub(crate) struct OptimizeArgs {
    /// Process ID of the program
    #[arg(short, long, value_name = "PID")]
    pid: u32,

    /// Time to profile the program
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME", default_value = "3s")]
    time: Duration,

    /// Optimize this file: a part of its path [default: the program's own]
    #[arg(long, value_name = "FILE")]
    file: Option<String>,

    /// Optimize these functions and what they call: a name, with * and ? as wildcards
    #[arg(long, value_name = "FUNCTION")]
    func: Option<String>,

    /// Measure progress by this place, as in `refit probe` [default: a function that is found]
    #[arg(long, value_name = "PLACE")]
    progress: Option<String>,

    /// Time of each measurement; there are four in a round, and 20 to 120 rounds
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME", default_value = "25ms")]
    slot: Duration,

    /// Do not measure what copies in the old order gain
    #[arg(long)]
    no_placebo: bool,

    /// Only profile the program, and say what would be copied
    #[arg(long, conflicts_with_all = ["undo", "status"])]
    dry_run: bool,

    /// Keep the copies without measuring what they gain
    #[arg(long, conflicts_with_all = ["undo", "status", "dry_run"])]
    unproved: bool,

    /// Take the copies out again
    #[arg(long, conflicts_with = "status")]
    undo: bool,

    /// Say whether the program is optimised
    #[arg(long)]
    status: bool,
}

/// Runs the command.
pub(crate) fn run(args: &OptimizeArgs, out: &mut Output) -> Result<(), Failure> {
    if args.undo {
        return undo(args.pid, out);
    }
    if args.status {
        return status(args.pid, out);
    }
    let options = options(args)?;
    let program = open(args.pid)?;
    let mut said = Ok(());
    let json = out.json();
    let outcome = optimize(&program, &options, &mut |step| {
        if !json && said.is_ok() {
            said = out.line(&describe(step)).and_then(|()| out.flush());
        }
    });
    said?;
    let outcome = outcome.map_err(|error| failed(args.pid, &error))?;
    if json {
        out.object(&Record::new(&outcome))?
    } else {
        out.line(&verdict(&outcome))?
    }
    out.flush()
}

fn options(args: &OptimizeArgs) -> Result<Options, Failure> {
    let count = |place: &String| format!("{place} {{ count }}").parse::<Spec>();
    let not_understood = |why: NotUnderstood| {
        let what = format!("measure progress by {}", args.progress.as_deref().unwrap_or_default());
        Failure::new(what, why.to_string(), "name a place, such as uprobe:FILE:FUNCTION")
    };
    Ok(Options {
        profile: args.time,
        file: args.file.clone(),
        functions: args.func.clone(),
        progress: args.progress.as_ref().map(count).transpose().map_err(not_understood)?,
        slot: args.slot,
        placebo: if args.no_placebo { 0 } else { Options::default().placebo },
        rehearse: args.dry_run,
        unproved: args.unproved,
    })
}

fn failed(id: u32, error: &Error) -> Failure {
    let remedy = match error {
        Error::Watch(error) => return failure(id, error),
        Error::Small { .. } => "leave it as it is, or name a library with --file",
        Error::Idle { .. } => "put load on it, or profile it for longer with --for",
        Error::Already => "run `refit optimize --undo` first",
        Error::NoProgress => {
            "put load on it, or name a function that it calls for each piece of work with --progress"
        }
        Error::Unwinder { .. } => "optimise another file with --file",
        Error::ShadowStack => "start it without shadow stacks (GLIBC_TUNABLES)",
        Error::NoFile { .. } => "name a part of the path of a file that it has mapped",
        _ => "put load on it, and name a function that it calls often with --progress",
    };
    Failure::new(format!("optimize process {id}"), error.to_string(), remedy)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Called(called, hot) => format!(
            "{} called, {} of them hot",
            format::counted(*called as u64, "function"),
            format::count(*hot as u64)
        ),
        Step::Profiled(functions, time) => format!(
            "blocks of {} counted for {}",
            format::counted(*functions as u64, "function"),
            format::nanos(time.as_nanos() as u64)
        ),
        Step::LaidOut(functions, blocks, before, after) => format!(
            "{} of {} laid out: {}",
            format::counted(*blocks as u64, "block"),
            format::counted(*functions as u64, "function"),
            changed(before, after)
        ),
        Step::Progress(name) => format!("progress is measured by calls of {name}"),
        Step::Placebo(proof) => format!("copies in the old order: {}", proved(proof)),
        Step::Measured(proof) => format!("copies in the new order: {}", proved(proof)),
    }
}

fn changed(before: &Figures, after: &Figures) -> String {
    format!(
        "{:.0} → {:.0} jumps taken per 1,000 blocks, {} → {} cache lines, {} → {} pages, {}",
        before.taken,
        after.taken,
        format::count(before.lines),
        format::count(after.lines),
        format::count(before.pages),
        format::count(after.pages),
        format::size(after.bytes)
    )
}

fn proved(proof: &Proof) -> String {
    let stop = format::nanos(proof.stop.as_nanos() as u64);
    format!("{} in {} rounds; stops of at most {stop}", percent(&proof.gain), proof.rounds)
}

fn percent(gain: &Interval) -> String {
    let [estimate, low, high] = [gain.estimate, gain.low, gain.high].map(|part| part * 100.0);
    format!("{estimate:+.1} % ({low:+.1} to {high:+.1})")
}

fn verdict(outcome: &Outcome) -> String {
    match &outcome.verdict {
        Verdict::Kept(gain) => {
            format!("kept: {} progress for the same processor time", percent(gain))
        }
        Verdict::Unproved => "kept, unproved".to_owned(),
        Verdict::Undone(gain) => format!("undone, since it is not sure to pay: {}", percent(gain)),
        Verdict::Rehearsed => "nothing changed".to_owned(),
    }
}

/// The result, for programs. Gains and their intervals are ratios: 0.05 is 5 %.
#[derive(Serialize)]
struct Record {
    verdict: &'static str,
    gain: Option<[f64; 3]>,
    placebo: Option<[f64; 3]>,
    longest_stop_ns: u64,
}

impl Record {
    fn new(outcome: &Outcome) -> Self {
        let numbers = |gain: Interval| [gain.estimate, gain.low, gain.high];
        let (verdict, gain) = match outcome.verdict {
            Verdict::Kept(gain) => ("kept", Some(gain)),
            Verdict::Unproved => ("unproved", None),
            Verdict::Undone(gain) => ("undone", Some(gain)),
            Verdict::Rehearsed => ("rehearsed", None),
        };
        Self {
            verdict,
            gain: gain.map(numbers),
            placebo: outcome.placebo.map(numbers),
            longest_stop_ns: outcome.stop.as_nanos() as u64,
        }
    }
}

fn undo(id: u32, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        areas: usize,
        gates: usize,
        kept: usize,
    }
    let program = open_to_clean(id)?;
    let removed = remains::take_out(&program, Which::Arrangements);
    let removed = removed.map_err(|why| failure(id, &why.into()))?;
    let (areas, gates, kept) = (removed.areas, removed.sites, removed.kept);
    if out.json() {
        out.object(&Line { areas, gates, kept })?;
    } else if areas + kept == 0 {
        out.line("the process is not optimised")?;
    } else {
        let stood = format::nanos(removed.stood.as_nanos() as u64);
        out.line(&format!("undone: {}; stopped for at most {stood}", sites(gates)))?;
    }
    out.flush()?;
    if kept > 0 {
        tell_kept(id, &removed);
    }
    Ok(())
}

fn sites(gates: usize) -> String {
    format!("{} of its code restored", format::counted(gates as u64, "place"))
}

fn status(id: u32, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        optimised: bool,
        gates: usize,
        bytes: u64,
    }
    let program: Program = open_to_clean(id)?;
    let found = remains::find(&program).map_err(|refusal| failure(id, &refusal.into()))?;
    let arranged = found.iter().filter(|one| one.makes_calls() && !one.has_versions());
    let mut entered = arranged.map(|one| (one.entered(&program), one.code_bytes()));
    let (gates, bytes) = entered.find(|(gates, _)| *gates > 0).unwrap_or_default();
    let optimised = gates > 0;
    if out.json() {
        out.object(&Line { optimised, gates, bytes })?;
    } else if optimised {
        let (places, size) = (format::counted(gates as u64, "place"), format::size(bytes));
        out.line(&format!("optimised: control enters {size} of copies at {places}"))?;
    } else {
        out.line("not optimised")?;
    }
    out.flush()
}
