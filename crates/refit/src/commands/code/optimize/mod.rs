//! `refit optimize`: lays out the hot code of a running program anew, and keeps that if it pays.

mod journaled;
mod launched;
mod told;
mod undo;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;
use refit_optimize::stored::NoProfile;
use refit_optimize::{Error, Options, Outcome, Step, optimize, stored};
use refit_probe::spec::{NotUnderstood, Spec};
use refit_splice::process::Program;

use self::journaled::Optimisation;
use super::program::{failure, open};
use super::{footprint, watching};
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
  refit optimize --dry-run --for 2s -- cc1plus -O2 a.ii -o a.s
  refit optimize --run -- cc1plus -O2 a.ii -o a.s

Counts how often each block of the hot functions runs, copies the hot blocks in an order in which most jumps fall through, and leads the program there. \
Control enters and leaves the copies many times while the program's progress for its processor time is measured; the copies stay only if they pay. \
They stay after refit has ended, and `refit optimize --undo` or `refit repair` takes them out. \
The counts are added to the profile of the binary, which is stored by its build id for --from-profile and --run.")]
pub(crate) struct OptimizeArgs {
    /// Process ID of the program
    #[arg(short, long, value_name = "PID", required_unless_present = "command")]
    #[arg(conflicts_with = "command")]
    pid: Option<u32>,

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

    /// Only profile the program, store the profile, and say what would be copied
    #[arg(long, conflicts_with_all = ["undo", "status"])]
    dry_run: bool,

    /// Keep the copies without measuring what they gain
    #[arg(long, conflicts_with_all = ["undo", "status", "dry_run"])]
    unproved: bool,

    /// Do not count, but use the stored profile of the binary
    #[arg(long, conflicts_with_all = ["undo", "status"])]
    from_profile: bool,

    /// Start COMMAND with its code laid out from the stored profile, before its first instruction
    #[arg(long, requires = "command", conflicts_with_all = ["undo", "status", "dry_run", "progress"])]
    run: bool,

    /// Draw the cache lines of the hot code, before and after, to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["undo", "status"])]
    svg: Option<PathBuf>,

    /// Take the copies out again
    #[arg(long, requires = "pid", conflicts_with = "status")]
    undo: bool,

    /// Say whether the program is optimised
    #[arg(long, requires = "pid")]
    status: bool,

    /// Program to start
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &OptimizeArgs, out: &mut Output) -> Result<(), Failure> {
    if args.run {
        return launched::run(args, out);
    }
    match args.pid {
        Some(id) if args.undo => undo::undo(id, out),
        Some(id) if args.status => undo::status(id, out),
        id => watching::with(id, &args.command, false, |id| running(args, id, out)),
    }
}

/// Optimises a running program, or one that was started for it and is stopped.
fn running(args: &OptimizeArgs, id: u32, out: &mut Output) -> Result<(), Failure> {
    let options = options(args)?;
    let program = open(id)?;
    if args.pid.is_none() {
        watching::go_on(&program);
    }
    let mut said = Ok(());
    let json = out.json();
    let outcome = optimized(args, &program, &options, &mut |step| {
        if !json && said.is_ok() {
            said = out.line(&told::describe(step)).and_then(|()| out.flush());
        }
    });
    said?;
    let outcome = outcome?;
    if json {
        out.object(&told::Record::new(&outcome))?
    } else {
        out.line(&told::verdict(&outcome))?
    }
    out.flush()
}

/// Optimises a program, records that in the journal, and draws what is asked for.
fn optimized(
    args: &OptimizeArgs,
    program: &Program,
    options: &Options,
    tell: &mut dyn FnMut(&Step),
) -> Result<Outcome, Failure> {
    let mut change = Optimisation::begin();
    let outcome = optimize(program, options, &mut |step| {
        change.step(step);
        tell(step);
    });
    let outcome = outcome.map_err(|error| failed(program.id(), &error))?;
    change.end(program, &outcome);
    if let (Some(file), Some(footprints)) = (&args.svg, &outcome.footprints) {
        draw(footprints, file)?;
    }
    Ok(outcome)
}

fn draw(footprints: &refit_optimize::footprint::Footprints, file: &Path) -> Result<(), Failure> {
    std::fs::write(file, footprint::svg(footprints)).map_err(|e| {
        let remedy = "make room, or name a file that you may write to";
        Failure::new(format!("draw {}", file.display()), e.to_string(), remedy)
    })
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
        unproved: args.unproved || args.run,
        profiles: stored::directory(),
        from_profile: args.from_profile || args.run,
        footprints: args.svg.is_some(),
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
        Error::NoProfile(NoProfile::NoDirectory) => "set XDG_STATE_HOME",
        Error::NoProfile(_) => {
            "profile a process of it under load with `refit optimize -p PID --dry-run`"
        }
        _ => "put load on it, and name a function that it calls often with --progress",
    };
    Failure::new(format!("optimize process {id}"), error.to_string(), remedy)
}
