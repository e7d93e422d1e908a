//! Run and limit programs under instances.

mod limit;
pub(crate) mod process;
mod ps;
mod run;
pub(crate) mod tend;

use clap::Subcommand;

use self::limit::LimitArgs;
use self::run::RunArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Commands that run, list and limit programs.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgramsCommand {
    /// Run a program under an instance of its own
    Run(RunArgs),

    /// List processes that run under instances
    #[command(after_help = "Example:\n  refit ps --json")]
    Ps,

    /// Limit the memory of a running program and of every program it starts
    Limit(LimitArgs),

    /// Supervise a program (started by `refit run`)
    #[command(hide = true, after_help = "Example:\n  refit run -- make -j2 &\n  pgrep -a refit")]
    Tend {
        /// The process that becomes the program
        process: u32,
        /// Memory limit of the program and its descendants, in bytes
        #[arg(long, value_name = "BYTES")]
        memory: Option<u64>,
        /// Make the program movable
        #[arg(long)]
        movable: bool,
    },
}

impl ProgramsCommand {
    /// Runs the command at the instance `only`, or at every instance of this user.
    pub(crate) fn run(&self, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
        match self {
            ProgramsCommand::Run(args) => run::run(args),
            ProgramsCommand::Ps => ps::run(only, out),
            ProgramsCommand::Limit(args) => limit::run(args, only, out),
            ProgramsCommand::Tend { process, memory, movable } => {
                tend::run(*process, *memory, *movable)
            }
        }
    }
}
