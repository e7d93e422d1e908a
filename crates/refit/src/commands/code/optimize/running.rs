//! Optimises a running program, records that in the journal, and draws what is asked for.

use std::path::Path;

use refit_optimize::footprint::Footprints;
use refit_optimize::stored::NoProfile;
use refit_optimize::{Error, Outcome, Step, optimize};
use refit_splice::process::Program;

use super::args::OptimizeArgs;
use super::journaled::Optimisation;
use super::told;
use crate::commands::code::program::{failure, open};
use crate::commands::code::proof::{self, NAME_OFTEN, NAME_PROGRESS, WITHOUT_SHADOW_STACKS};
use crate::commands::code::{footprint, watching};
use crate::failure::Failure;
use crate::output::Output;

/// Optimises a running program, or one that was started for it and is stopped.
pub(super) fn running(args: &OptimizeArgs, id: u32, out: &mut Output) -> Result<(), Failure> {
    let program = open(id)?;
    if args.pid.is_none() {
        watching::go_on(&program);
    }
    let mut said = Ok(());
    let json = out.json();
    let outcome = optimized(args, &program, &mut |step| {
        if !json && said.is_ok() {
            said = out.line(&told::describe(step)).and_then(|()| out.flush());
        }
    });
    said?;
    let outcome = outcome?;
    if json {
        out.object(&told::Record::new(&outcome))?
    } else {
        out.line(&proof::stopped(&outcome.stops))?;
        out.line(&proof::verdict(&outcome.verdict))?
    }
    out.flush()
}

/// Optimises a program, records that in the journal, and draws what is asked for.
pub(super) fn optimized(
    args: &OptimizeArgs,
    program: &Program,
    tell: &mut dyn FnMut(&Step),
) -> Result<Outcome, Failure> {
    let options = args.options()?;
    let mut change = Optimisation::begin();
    let outcome = optimize(program, &options, &mut |step| {
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

fn draw(footprints: &Footprints, file: &Path) -> Result<(), Failure> {
    std::fs::write(file, footprint::svg(footprints)).map_err(|e| {
        let remedy = "make room, or name a file that you may write to";
        Failure::new(format!("draw {}", file.display()), e.to_string(), remedy)
    })
}

fn failed(id: u32, error: &Error) -> Failure {
    let remedy = match error {
        Error::Watch(error) => return failure(id, error),
        Error::Small { .. } => "leave it as it is, or name a library with --file",
        Error::Idle { .. } => "put load on it, or profile it for longer with --for",
        Error::Already => "run `refit optimize --undo` first",
        Error::Left { .. } => "try again later",
        Error::NoProgress => NAME_PROGRESS,
        Error::Unwinder { .. } => "optimise another file with --file",
        Error::ShadowStack => WITHOUT_SHADOW_STACKS,
        Error::NoFile { .. } => "name a part of the path of a file that it has mapped",
        Error::NoProfile(NoProfile::NoDirectory) => "set XDG_STATE_HOME",
        Error::NoProfile(_) => {
            "profile a process of it under load with `refit optimize -p PID --dry-run`"
        }
        _ => NAME_OFTEN,
    };
    Failure::new(format!("optimize process {id}"), error.to_string(), remedy)
}
