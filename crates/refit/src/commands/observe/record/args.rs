//! The arguments of `refit record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};
use refit_probe::spec::Spec;

use crate::format;

/// Arguments of `refit record`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit record -o boot.trace -- ./server --port 8080
  refit record -p 4711 --for 10s
  refit record -p 4711 -e 'uprobe:nginx:ngx_http_* { span }' --for 10s
  refit record --mode flight --ring 64M
  refit report refit.trace

All instances of this user take part, unless -p names one. What a command records is what it is instrumented \
for, with the crate refit-instruments or refit.h; context switches are recorded of any program.")]
pub(crate) struct RecordArgs {
    /// Record this process alone: an instance, or any program for its context switches
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pub(super) pid: Option<u32>,

    /// Watch this in the process or command too: as for `refit probe`; counts are told as samples
    #[arg(short = 'e', long = "expression", value_name = "PROBE", conflicts_with = "check")]
    pub(super) probes: Vec<Spec>,

    /// Where the trace goes
    #[arg(short, long, default_value = "refit.trace", value_name = "FILE")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) output: PathBuf,

    /// Behavior when a buffer fills
    #[arg(long, value_enum, default_value = "stream")]
    pub(super) mode: ModeArg,

    /// Size of each processor's buffer
    #[arg(long, value_parser = format::parse_size, value_name = "SIZE")]
    pub(super) ring: Option<u64>,

    /// Begin another file once one is as large as this
    #[arg(long, value_parser = format::parse_size, value_name = "SIZE")]
    pub(super) rotate: Option<u64>,

    /// Number of these files that stay; the oldest are removed
    #[arg(long, requires = "rotate", value_name = "N", default_value_t = 0)]
    pub(super) keep: u32,

    /// For how long; otherwise until the command ends, or Ctrl-C
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    pub(super) time: Option<Duration>,

    /// Leave context switches out
    #[arg(long)]
    pub(super) no_switches: bool,

    /// Run the command by turns with and without recording, and tell the difference
    #[arg(long, requires = "command")]
    pub(super) check: bool,

    /// Number of runs with and without recording, for --check
    #[arg(long, requires = "check", default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..1000))]
    pub(super) rounds: u32,

    /// The command to run
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<String>,
}

/// The behavior when a buffer fills.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ModeArg {
    /// Written as it comes; what finds no place is lost, and counted
    Stream,
    /// The oldest is forgotten; what is there at the end is written
    Flight,
    /// All processors stand still and write; nothing is lost, and the time is told
    Dump,
}
