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
    /// Watch caches being swapped under running programs, for about a minute
    Tour(TourArgs),

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
