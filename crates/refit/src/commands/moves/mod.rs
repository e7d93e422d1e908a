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
    /// Start several instances that make one system: programs move between them
    Boot(BootArgs),

    /// List the instances that make one system
    #[command(after_help = "Example:\n  refit boot --instances 2\n  refit instances --json")]
    Instances,

    /// End the instances that make one system
    #[command(after_help = "Example:\n  refit shutdown --kill")]
    Shutdown {
        /// Kill the programs that run under them
        #[arg(long)]
        kill: bool,
    },

    /// Have a program, or one thread of it, go on at another instance
    Move(MoveArgs),

    /// Have the threads of a program run at all instances in turn
    #[command(
        after_help = "Example:\n  refit run --on 0 --movable -- ./solver &\n  refit spread $!\n  refit ps"
    )]
    Spread {
        /// The process
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        pid: u32,
    },

    /// Be one of several instances: what `refit boot` starts
    #[command(hide = true, after_help = "Example:\n  refit boot --instances 2\n  pgrep -a refit")]
    Kernel {
        /// Its number
        number: u16,
        /// Its processors
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
