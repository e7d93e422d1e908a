//! `refit optimize --run`: starts a program with its code laid out from the stored profile.
//!
//! The program is stopped where the loader hands over to it, which is before the first instruction
//! of its own. It always runs to its end: if its code cannot be laid out, it runs as it was linked,
//! and refit says why. So a command that a build starts does not depend on a profile.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Instant;

use refit_optimize::Outcome;
use refit_splice::process::Program;

use super::args::OptimizeArgs;
use super::running::optimized;
use super::told;
use crate::commands::code::program::open;
use crate::commands::code::proof;
use crate::commands::code::watching::{go_on, start};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Runs the command, and ends as it does.
pub(super) fn run(args: &OptimizeArgs, out: &mut Output) -> Result<(), Failure> {
    let began = Instant::now();
    let mut child = start(&args.command)?;
    let program = match open(child.id()) {
        Ok(program) => program,
        Err(failure) => {
            // Nothing has been changed, and nobody else resumes it.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failure);
        }
    };
    let laid_out = lay_out(args, &program);
    go_on(&program);
    let took = format::nanos(began.elapsed().as_nanos() as u64);
    if let Err(failure) = &laid_out {
        say!("{failure}; it runs as it was linked");
    }
    let status = wait(&mut child, &args.command)?;
    match &laid_out {
        Ok(outcome) if out.json() => out.object(&told::Record::new(outcome))?,
        Ok(outcome) => {
            say!(
                "refit: {}: {}; begun after {took}",
                args.command[0],
                proof::verdict(&outcome.verdict)
            );
        }
        Err(_) => {}
    }
    out.flush()?;
    match code(status) {
        0 => Ok(()),
        code => std::process::exit(code),
    }
}

/// Lays out the code of a stopped program.
fn lay_out(args: &OptimizeArgs, program: &Program) -> Result<Outcome, Failure> {
    optimized(args, program, &mut |_| {})
}

fn wait(child: &mut Child, command: &[String]) -> Result<ExitStatus, Failure> {
    child.wait().map_err(|e| {
        Failure::new(format!("wait for {}", command[0]), e.to_string(), "see whether it runs")
    })
}

/// Returns the exit code that a shell reports.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}
