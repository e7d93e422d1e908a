//! This host: what it offers, a tour of refit on it, and files for its shells and compilers.

mod debug_dump;
mod doctor;
mod documents;

use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::{Subcommand, ValueEnum};

use crate::commands::tour::{self, TourArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Commands about this host and this installation.
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Demonstrate swaps of file caches under running programs, for about a minute
    Tour(TourArgs),

    /// Check the facilities of this host: which are missing, what that costs, and how to get them
    #[command(after_help = "Example:\n  refit doctor")]
    Doctor,

    /// Print the last 10,000 events of each instance, to diagnose a hang
    #[command(after_help = "\
Example:
  refit debug-dump > here.txt
  refit --instance 4711 debug-dump --json | jq 'select(.level != \"DEBUG\")'

Each instance keeps its events in memory, whatever `--log` says. If something hangs between two hosts, \
dump the events of both: groups, threads and residencies have the same numbers on either host.")]
    DebugDump,

    /// Print shell completions
    #[command(after_help = "Example:\n  refit completions bash > /etc/bash_completion.d/refit")]
    Completions {
        /// Shell to print completions for
        shell: clap_complete::Shell,
    },

    /// Print a C header: to move threads between instances, or to instrument programs
    #[command(
        after_help = "Example:\n  refit header > refit_move.h\n  refit header instruments > refit.h"
    )]
    Header {
        /// Header to print
        #[arg(value_enum, default_value = "move")]
        which: HeaderArg,
    },

    /// Write man pages
    #[command(after_help = "Example:\n  refit man /usr/local/share/man/man1")]
    Man {
        /// Directory to write to
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

impl HostCommand {
    /// Runs the command at the instance `only`, or at every instance of this user. `refit` is the
    /// definition of the whole command line.
    pub(crate) fn run(
        &self,
        refit: clap::Command,
        only: Option<u32>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        match self {
            HostCommand::Tour(args) => tour::run(args, out),
            HostCommand::Doctor => doctor::run(out),
            HostCommand::DebugDump => debug_dump::run(only, out),
            HostCommand::Completions { shell } => documents::completions(refit, *shell, out),
            HostCommand::Header { which: HeaderArg::Move } => {
                out.raw(refit_migrate::HEADER.as_bytes())
            }
            HostCommand::Header { which: HeaderArg::Instruments } => {
                out.raw(refit_instruments::HEADER.as_bytes())
            }
            HostCommand::Man { directory } => documents::man(refit, directory, out),
        }
    }
}
