//! Move programs: several instances that make one system, and threads that change between them.

pub(crate) mod boot;
pub(crate) mod processors;
mod setting;
mod threads;
pub(crate) mod totals;

use clap::Subcommand;

use self::boot::BootArgs;
use self::setting::SettingArgs;
use self::threads::MoveArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Commands for several instances, and for moves between them.
#[derive(Debug, Subcommand)]
pub(crate) enum MovesCommand {
    /// Start several instances as one system, between which programs can move
    Boot(BootArgs),

    /// List booted instances
    #[command(after_help = "Example:\n  refit boot --instances 2\n  refit instances --json")]
    Instances,

    /// Shut down all booted instances
    #[command(after_help = "Example:\n  refit shutdown --kill")]
    Shutdown {
        /// Kill programs that run under the instances
        #[arg(long)]
        kill: bool,
    },

    /// Move a program, or one thread of it, to another instance
    Move(MoveArgs),

    /// Distribute the threads of a program over all instances in turn
    #[command(
        after_help = "Example:\n  refit run --on 0 --movable -- ./solver &\n  refit spread $!\n  refit ps"
    )]
    Spread {
        /// Process ID of the program
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        pid: u32,
    },

    /// Run one booted instance (started by `refit boot`)
    #[command(hide = true, after_help = "Example:\n  refit boot --instances 2\n  pgrep -a refit")]
    Kernel {
        /// Number of the instance
        number: u16,
        /// Processors of the instance
        processors: String,
        #[command(flatten)]
        setting: SettingArgs,
    },
}

impl MovesCommand {
    /// Runs the command at the instance `only`, or at every instance of this user.
    pub(crate) fn run(&self, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
        match self {
            MovesCommand::Boot(args) => boot::run(args, out),
            MovesCommand::Instances => boot::list(only, out),
            MovesCommand::Shutdown { kill } => boot::shutdown(*kill, only),
            MovesCommand::Move(args) => threads::run(args, only),
            MovesCommand::Spread { pid } => threads::spread(*pid, only),
            MovesCommand::Kernel { number, processors, setting } => {
                boot::be(*number, processors, setting)
            }
        }
    }
}
