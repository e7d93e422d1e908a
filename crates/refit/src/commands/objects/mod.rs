//! Change objects: list, swap, wrap and load implementations of objects while they are used.

mod adapt;
pub(crate) mod changes;
mod classes;
mod hierarchy;
mod plugins;
mod rehearsal;
mod show;
mod swap;
pub(crate) mod tally;
mod wrap;
mod wrappers;

use std::path::PathBuf;

use clap::Subcommand;
use clap::builder::ValueHint;

use self::adapt::AdaptArgs;
use self::changes::ChangesArgs;
use self::classes::UpgradeArgs;
use self::show::{LsArgs, ShowArgs};
use self::swap::SwapArgs;
use self::wrap::{UnwrapArgs, WrapArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Commands that list and change objects.
#[derive(Debug, Subcommand)]
pub(crate) enum ObjectsCommand {
    /// List objects
    Ls(LsArgs),

    /// Show everything that is known about an object, or a process
    Show(ShowArgs),

    /// Swap objects for another implementation while they are used
    Swap(SwapArgs),

    /// List the classes of objects: what new ones are made of, and how many there are
    #[command(after_help = "Example:\n  refit classes")]
    Classes,

    /// Swap all objects of a class and what new ones are made of, or nothing
    Upgrade(UpgradeArgs),

    /// Put code around objects that sees every call, while they are used
    Wrap(WrapArgs),

    /// Take such code away again
    Unwrap(UnwrapArgs),

    /// Load implementations that were built apart, so that objects can be swapped to them
    #[command(after_help = "\
Example:
  refit load ./libfast.so
  refit plugins
  refit swap store:users fast

The file is checked before any code of it runs. The same path can be loaded again with new code in it.")]
    Load {
        /// A shared library that was built with refit_objects::plugin!
        #[arg(value_hint = ValueHint::FilePath)]
        plugin: PathBuf,
    },

    /// List loaded code: what it implements, how many objects it serves, the memory that it takes
    #[command(after_help = "Example:\n  refit plugins --json")]
    Plugins,

    /// Say why loaded code stays mapped, and who uses it
    #[command(after_help = "Example:\n  refit unload ./libfast.so")]
    Unload {
        /// The file, or the build id
        #[arg(value_hint = ValueHint::FilePath)]
        plugin: PathBuf,
    },

    /// Have caches swapped by how they are used, until Ctrl-C
    Adapt(AdaptArgs),

    /// Show the journal: every change that has ended
    Changes(ChangesArgs),
}

impl ObjectsCommand {
    /// Runs the command at the instance `only`, or at every instance of this user.
    pub(crate) fn run(&self, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
        match self {
            ObjectsCommand::Ls(args) => show::list(args, only, out),
            ObjectsCommand::Show(args) => show::show(args, only, out),
            ObjectsCommand::Swap(args) => swap::run(args, only, out),
            ObjectsCommand::Classes => classes::list(only, out),
            ObjectsCommand::Upgrade(args) => classes::upgrade(args, only, out),
            ObjectsCommand::Wrap(args) => wrap::wrap(args, only, out),
            ObjectsCommand::Unwrap(args) => wrap::unwrap(args, only, out),
            ObjectsCommand::Load { plugin } => plugins::load(plugin, only, out),
            ObjectsCommand::Plugins => plugins::list(only, out),
            ObjectsCommand::Unload { plugin } => plugins::unload(plugin, only),
            ObjectsCommand::Adapt(args) => adapt::run(args, only, out),
            ObjectsCommand::Changes(args) => changes::run(args, only, out),
        }
    }
}
