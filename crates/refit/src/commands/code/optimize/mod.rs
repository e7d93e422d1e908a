//! `refit optimize`: lays out the hot code of a running program anew, and keeps that if it pays.

mod args;
mod journaled;
mod launched;
mod running;
mod told;
mod undo;

pub(crate) use self::args::OptimizeArgs;
use super::watching;
use crate::failure::Failure;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &OptimizeArgs, out: &mut Output) -> Result<(), Failure> {
    if args.run {
        return launched::run(args, out);
    }
    match args.pid {
        Some(id) if args.undo => undo::undo(id, out),
        Some(id) if args.status => undo::status(id, out),
        id => watching::with(id, &args.command, false, |id| running::running(args, id, out)),
    }
}
