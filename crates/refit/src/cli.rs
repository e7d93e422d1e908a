//! The command line: one definition for parsing, help, man pages and completions.

use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::{Parser, Subcommand, ValueEnum};

use crate::commands::adapt::AdaptArgs;
use crate::commands::boot::BootArgs;
use crate::commands::changes::ChangesArgs;
use crate::commands::classes::UpgradeArgs;
use crate::commands::code::cfg::CfgArgs;
use crate::commands::code::funcs::FuncsArgs;
use crate::commands::cover::CoverArgs;
use crate::commands::drill::DrillArgs;
use crate::commands::export::ExportArgs;
use crate::commands::instruments::InstrumentsArgs;
use crate::commands::limit::LimitArgs;
use crate::commands::metrics::MetricsArgs;
use crate::commands::mount::MountArgs;
use crate::commands::mounts::CacheArg;
use crate::commands::moves::MoveArgs;
use crate::commands::objects::{LsArgs, ShowArgs};
use crate::commands::probe::{ProbeArgs, RepairArgs};
use crate::commands::record::RecordArgs;
use crate::commands::report::ReportArgs;
use crate::commands::run::RunArgs;
use crate::commands::setting::SettingArgs;
use crate::commands::swap::SwapArgs;
use crate::commands::top::TopArgs;
use crate::commands::tour::TourArgs;
use crate::commands::wrap::{UnwrapArgs, WrapArgs};
use crate::logging::LogArgs;

/// An operating-system layer that can be changed while programs use it
#[derive(Debug, Parser)]
#[command(name = "refit", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
Objects are named interface:instance, e.g. fcm:/logs/a. In patterns `*` matches any characters, `/` too, \
and `?` matches one; everything else is literal.

Example:
  refit mount ~/data /mnt/data &
  refit ls 'fcm:*'
  refit swap 'fcm:/logs/*' partitioned

Exit code: 0 done, 1 refused or failed, 2 wrong usage.")]
pub(crate) struct Cli {
    /// Print one JSON object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Ask only the instance with this process id; otherwise every instance of this user
    #[arg(long, global = true, value_name = "PID")]
    pub(crate) instance: Option<u32>,

    #[command(flatten)]
    pub(crate) log: LogArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve directories; runs until Ctrl-C, then stores everything and unmounts
    Mount(MountArgs),

    /// List objects
    Ls(LsArgs),

    /// Show everything that is known about an object, or a process
    Show(ShowArgs),

    /// Swap objects for another implementation while they are used
    Swap(SwapArgs),

    /// Have caches swapped by how they are used, until Ctrl-C
    Adapt(AdaptArgs),

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

    /// Show the journal: every change that has ended
    Changes(ChangesArgs),

    /// Show what a trace says: time by class and method, context switches, waits, losses
    Report(ReportArgs),

    /// List functions of a program or library: where they are, how large, who knows of them
    Funcs(FuncsArgs),

    /// Show the control flow of a function: basic blocks, edges, instructions, what is dead where
    Cfg(CfgArgs),

    /// Make a file for another tool out of a trace
    Export(ExportArgs),

    /// Change who caches files: the kernel too, refit alone, or whatever suits each file
    #[command(after_help = "Example:\n  refit cache '/logs/*' direct")]
    Cache {
        /// Pattern over file names, with or without `fcm:`
        glob: String,
        /// Cache mode
        mode: CacheArg,
    },

    /// List what is mounted
    #[command(after_help = "Example:\n  refit mounts --json")]
    Mounts,

    /// Store everything and unmount
    #[command(after_help = "Example:\n  refit umount /mnt/data")]
    Umount {
        /// Where it is mounted
        #[arg(value_hint = ValueHint::DirPath)]
        mountpoint: PathBuf,

        /// Give up what cannot be stored, because the disk is full or has failed
        #[arg(long)]
        discard: bool,
    },

    /// Run a program under an instance of its own, as if there were none
    Run(RunArgs),

    /// Tend a program: what `refit run` starts beside it
    #[command(hide = true, after_help = "Example:\n  refit run -- make -j2 &\n  pgrep -a refit")]
    Tend {
        /// The process that becomes the program
        process: u32,
        /// Memory limit of its tree, in bytes
        #[arg(long, value_name = "BYTES")]
        memory: Option<u64>,
        /// Have its programs hold nothing of this kernel
        #[arg(long)]
        movable: bool,
    },

    /// Start several instances that make one system: programs move between them
    Boot(BootArgs),

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

    /// Limit the memory of a program that runs, and of all that it starts
    Limit(LimitArgs),

    /// List the processes of programs that run under instances
    #[command(after_help = "Example:\n  refit ps --json")]
    Ps,

    /// Watch functions and instructions of a program that runs: how often, how long, with what
    Probe(ProbeArgs),

    /// Watch which basic blocks of a program are reached, at a cost that vanishes as they are
    Cover(CoverArgs),

    /// Measure where the time in a function goes: its callees, and on into the one that takes most
    Drill(DrillArgs),

    /// Take out of a program what a killed refit has left
    Repair(RepairArgs),

    /// Record what instances, instrumented programs and the scheduler do
    Record(RecordArgs),

    /// List what is instrumented and what that costs now; suspend and resume it
    Instruments(InstrumentsArgs),

    /// Watch objects, mounts, processors and changes, live
    Top(TopArgs),

    /// Print what instances count, as OpenMetrics text
    Metrics(MetricsArgs),

    /// Check what this host offers, what is missing, what that costs and how to get it
    #[command(after_help = "Example:\n  refit doctor")]
    Doctor,

    /// Print the last 10,000 events of instances: what they did, step by step
    #[command(after_help = "\
Example:
  refit debug-dump > here.txt
  refit --instance 4711 debug-dump --json | jq 'select(.level != \"DEBUG\")'

Each instance keeps them in memory, whatever `--log` says. Where something hangs between two hosts, \
dump both: groups, threads and residencies have the same numbers on either.")]
    DebugDump,

    /// Watch caches being swapped under running programs, for about a minute
    Tour(TourArgs),

    /// Print completions for a shell
    #[command(after_help = "Example:\n  refit completions bash > /etc/bash_completion.d/refit")]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },

    /// Print a C header: for threads that ask to go to another instance, or for instruments
    #[command(
        after_help = "Example:\n  refit header > refit_move.h\n  refit header instruments > refit.h"
    )]
    Header {
        /// Which
        #[arg(value_enum, default_value = "move")]
        which: HeaderArg,
    },

    /// Write man pages
    #[command(after_help = "Example:\n  refit man /usr/local/share/man/man1")]
    Man {
        /// Where to
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

/// A C header.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HeaderArg {
    /// `refit_move.h`: refit_move(instance) and refit_instance()
    Move,
    /// `refit.h`: events, counters and timers, as `refit record` records them
    Instruments,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:"), "{}", command.get_name());
        }
    }
}
