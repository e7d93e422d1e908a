//! `refit specialize`: makes versions of a function of a running program for the hot values of an
//! argument, and keeps them if they pay.

use std::time::Duration;

use clap::Args;
use refit_specialize::graph::Limits;
use refit_specialize::values::Values;
use refit_specialize::{Error, Figures, Options, Outcome, Step, Target, specialize};
use refit_splice::remains::{self, Which};
use serde::Serialize;

use super::probe::tell_kept;
use super::program::{failure, open, open_to_clean};
use super::proof::{
    NAME_OFTEN, NAME_PROGRESS, StopsRecord, WITHOUT_SHADOW_STACKS, numbers, progress, progress_by,
    proved, stopped, verdict, word,
};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Number of values that are printed.
const TOLD: usize = 4;

/// Arguments of `refit specialize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit specialize -p 4711 'libc:malloc(arg0)'
  refit specialize -p 4711 'libperl:Perl_sv_setsv_flags(arg2=2)' --progress 'uprobe:libperl:Perl_pp_sassign'
  refit specialize -p 4711 --undo

Counts the values of an argument, and makes a version of the function for each of up to four that nearly all calls have: \
branches and loads that the value decides are left out. A comparison at the entry leads to the version. \
Control enters and leaves the versions many times while the program's progress for its processor time is measured; they stay only if they pay. \
They stay after refit has ended, and `refit specialize --undo` or `refit repair` takes them out.")]
pub(crate) struct SpecializeArgs {
    /// Process ID of the program
    #[arg(short, long, value_name = "PID")]
    pid: u32,

    /// Function and argument: FUNCTION(arg0), FILE:FUNCTION(arg0), or FUNCTION(arg0=VALUE)
    #[arg(value_name = "FUNCTION(argN)", required_unless_present = "undo")]
    target: Option<String>,

    /// Time to count the values of the argument
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME", default_value = "3s")]
    time: Duration,

    /// Measure progress by this place, as in `refit probe` [default: a function that is found]
    #[arg(long, value_name = "PLACE")]
    progress: Option<String>,

    /// Time of each measurement; there are four in a round, and 20 to 120 rounds
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME", default_value = "25ms")]
    slot: Duration,

    /// Most instructions by which unrolled loops may enlarge a version
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().instructions)]
    unroll: usize,

    /// Only count the values, and say what the versions would be
    #[arg(long, conflicts_with = "undo")]
    dry_run: bool,

    /// Keep the versions without measuring what they gain
    #[arg(long, conflicts_with_all = ["undo", "dry_run"])]
    unproved: bool,

    /// Take all versions out again
    #[arg(long, conflicts_with = "target")]
    undo: bool,
}

/// Runs the command.
pub(crate) fn run(args: &SpecializeArgs, out: &mut Output) -> Result<(), Failure> {
    let Some(target) = args.target.as_ref().filter(|_| !args.undo) else {
        return undo(args.pid, out);
    };
    let options = options(args, target)?;
    let program = open(args.pid)?;
    let mut said = Ok(());
    let json = out.json();
    let outcome = specialize(&program, &options, &mut |step| {
        if !json && said.is_ok() {
            said = out.line(&describe(step)).and_then(|()| out.flush());
        }
    });
    said?;
    let outcome = outcome.map_err(|error| failed(args.pid, &options.target, &error))?;
    if json {
        out.object(&Record::new(&outcome))?
    } else {
        out.line(&stopped(&outcome.stops))?;
        out.line(&verdict(&outcome.verdict))?
    }
    out.flush()
}

fn options(args: &SpecializeArgs, target: &str) -> Result<Options, Failure> {
    let parsed = target.parse::<Target>().map_err(|why| {
        let remedy = "name a function and one of its arguments, such as 'libc:malloc(arg0)'";
        Failure::new(format!("specialize {target}"), why.to_string(), remedy)
    })?;
    Ok(Options {
        profile: args.time,
        progress: progress(args.progress.as_deref())?,
        slot: args.slot,
        rehearse: args.dry_run,
        unproved: args.unproved,
        limits: Limits { instructions: args.unroll, ..Limits::default() },
        ..Options::new(parsed)
    })
}

fn failed(id: u32, target: &Target, error: &Error) -> Failure {
    let remedy = match error {
        Error::Watch(error) => return failure(id, error),
        Error::Idle { .. } => "put load on it, or count for longer with --for",
        Error::NotHot { .. } => "name another argument, or a value: FUNCTION(argN=VALUE)",
        Error::NoVersion { .. } => "name another function, such as its caller, or another argument",
        Error::Already { .. } => "run `refit specialize --undo` first",
        Error::NoProgress => NAME_PROGRESS,
        Error::Unwinder { .. } => "name a function of another file",
        Error::ShadowStack => WITHOUT_SHADOW_STACKS,
        _ => NAME_OFTEN,
    };
    let what = format!("specialize {} in process {id}", target.function);
    Failure::new(what, error.to_string(), remedy)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Values(values) => counted(values),
        Step::Made(value, size, figures) => format!(
            "version for {value:#x}: {} of {}; {} left out, {} folded, {} decided{}",
            format::counted(figures.instructions as u64, "instruction"),
            format::count(*size as u64),
            format::count(figures.left as u64),
            format::count(figures.folded as u64),
            format::counted(figures.branches as u64, "jump"),
            repeated(figures),
        ),
        Step::NotMade(value, why) => format!("no version for {value:#x}: {why}"),
        Step::Calls(0) => "no call has such a constant as its argument".to_owned(),
        Step::Calls(count) => format!(
            "{} with such a constant {} there without a comparison",
            format::counted(*count as u64, "call"),
            if *count == 1 { "leads" } else { "lead" }
        ),
        Step::Progress(name) => progress_by(name),
        Step::Measured(proof) => format!("measured: {}", proved(proof)),
    }
}

fn repeated(figures: &Figures) -> String {
    match figures.repeated {
        0 => String::new(),
        count => format!(", {} repeated", format::counted(count as u64, "block")),
    }
}

fn counted(values: &Values) -> String {
    let share = |count: u64| count as f64 * 100.0 / values.calls.max(1) as f64;
    let told = values.counts.iter().take(TOLD);
    let mut told: Vec<_> =
        told.map(|&(value, count)| format!("{value:#x} in {:.1} %", share(count))).collect();
    let others = values.counts.len().saturating_sub(TOLD);
    told.extend((others > 0).then(|| format!("{} more", format::counted(others as u64, "value"))));
    format!("{}: {}", format::counted(values.calls, "call"), told.join(", "))
}

/// The result, for programs. Gains and their intervals are ratios: 0.05 is 5 %.
#[derive(Serialize)]
struct Record {
    verdict: &'static str,
    gain: Option<[f64; 3]>,
    versions: Vec<VersionRecord>,
    #[serde(flatten)]
    stops: StopsRecord,
}

#[derive(Serialize)]
struct VersionRecord {
    value: u64,
    instructions: usize,
    left_out: usize,
    folded: usize,
    branches: usize,
}

impl Record {
    fn new(outcome: &Outcome) -> Self {
        let version = |&(value, figures): &(u64, Figures)| VersionRecord {
            value,
            instructions: figures.instructions,
            left_out: figures.left,
            folded: figures.folded,
            branches: figures.branches,
        };
        Self {
            verdict: word(&outcome.verdict),
            gain: outcome.verdict.gain().as_ref().map(numbers),
            versions: outcome.versions.iter().map(version).collect(),
            stops: StopsRecord::new(&outcome.stops),
        }
    }
}

fn undo(id: u32, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        areas: usize,
        functions: usize,
        kept: usize,
    }
    let program = open_to_clean(id)?;
    let removed = remains::take_out(&program, Which::Versions);
    let removed = removed.map_err(|why| failure(id, &why.into()))?;
    let (areas, functions, kept) = (removed.areas, removed.sites, removed.kept);
    if out.json() {
        out.object(&Line { areas, functions, kept })?;
    } else if areas + kept == 0 {
        out.line("no function of the process has versions")?;
    } else {
        let stood = format::nanos(removed.stood.as_nanos() as u64);
        let functions = format::counted(functions as u64, "function");
        out.line(&format!("undone: {functions} restored; stopped for at most {stood}"))?;
    }
    out.flush()?;
    if kept > 0 {
        tell_kept(id, &removed);
    }
    Ok(())
}
