//! `refit knob`: constants in the code of a running program that act as tunables.

mod apply;
mod arguments;
mod list;
mod look;
mod subject;
mod turn;

use crate::failure::Failure;
use crate::output::Output;

pub(crate) use self::arguments::KnobArgs;
use self::arguments::KnobCommand;

/// Runs the command.
pub(crate) fn run(args: &KnobArgs, out: &mut Output) -> Result<(), Failure> {
    let file = args.file.as_deref();
    match &args.command {
        KnobCommand::List(list) => list::run(args.pid, file, list, out),
        KnobCommand::Get(get) => look::run(args.pid, file, get, out),
        KnobCommand::Set(set) => turn::set(args.pid, file, set, out),
        KnobCommand::Unset(unset) => turn::unset(args.pid, file, unset, out),
        KnobCommand::Apply => apply::run(args.pid, out),
    }
}
