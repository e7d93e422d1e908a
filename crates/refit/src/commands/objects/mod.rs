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

    /// Show details of an object or a process
    Show(ShowArgs),

    /// Swap objects to another implementation while they are in use
    Swap(SwapArgs),

    /// List classes of objects, with their default implementations and numbers of objects
    #[command(after_help = "Example:\n  refit classes")]
    Classes,

    /// Upgrade a class: swap all its objects and its default implementation, or nothing
    Upgrade(UpgradeArgs),

    /// Attach a wrapper, which intercepts every call, to objects while they are in use
    Wrap(WrapArgs),

    /// Detach wrappers from objects
    Unwrap(UnwrapArgs),

    /// Load a plugin with implementations to which objects can be swapped
    #[command(after_help = "\
Example:
  refit load ./libfast.so
  refit plugins
  refit swap store:users fast

The file is checked before any code of it runs. The same path can be loaded again with new code in it.")]
    Load {
        /// Shared library built with refit_objects::plugin!
        #[arg(value_hint = ValueHint::FilePath)]
        plugin: PathBuf,
    },

    /// List loaded plugins: what they implement, the objects they serve, and the memory they take
    #[command(after_help = "Example:\n  refit plugins --json")]
    Plugins,

    /// Explain why a plugin stays mapped, and list what uses it
    #[command(after_help = "Example:\n  refit unload ./libfast.so")]
    Unload {
        /// File of the plugin, or its build ID
        #[arg(value_hint = ValueHint::FilePath)]
        plugin: PathBuf,
    },

    /// Swap caches automatically according to their access pattern, until Ctrl-C
    Adapt(AdaptArgs),

    /// Show the journal of completed changes
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
