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
  refit record -p 4711 --stacks --for 10s
  refit record --mode flight --ring 64M
  refit report refit.trace

record includes all instances of this user, unless -p names one. A command records the events for which it is instrumented, with \
the crate refit-instruments or refit.h; context switches are recorded for every program.")]
pub(crate) struct RecordArgs {
    /// Record only this process: an instance, or any program for its context switches
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pub(super) pid: Option<u32>,

    /// Probe of the process or command, as in `refit probe`; counts are recorded as samples
    #[arg(short = 'e', long = "expression", value_name = "PROBE", conflicts_with = "check")]
    pub(super) probes: Vec<Spec>,

    /// Trace file to write
    #[arg(short, long, default_value = "refit.trace", value_name = "FILE")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) output: PathBuf,

    /// The way to write the records, and what to do when a buffer is full
    #[arg(long, value_enum, default_value = "stream")]
    pub(super) mode: ModeArg,

    /// Size of each processor's buffer, e.g. 64M
    #[arg(long, value_parser = format::parse_size, value_name = "SIZE")]
    pub(super) ring: Option<u64>,

    /// Begin another file when the current one reaches this size
    #[arg(long, value_parser = format::parse_size, value_name = "SIZE")]
    pub(super) rotate: Option<u64>,

    /// Number of files to keep, of which the oldest are removed; 0 keeps all
    #[arg(long, requires = "rotate", value_name = "N", default_value_t = 0)]
    pub(super) keep: u32,

    /// End after this time (default: when the command ends, or at Ctrl-C)
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    pub(super) time: Option<Duration>,

    /// Do not record context switches
    #[arg(long)]
    pub(super) no_switches: bool,

    /// Record where threads of the process or command stand when they lose the processor, and who
    /// has called there
    #[arg(long, conflicts_with_all = ["no_switches", "check"])]
    pub(super) stacks: bool,

    /// Bytes of each stack that are examined, for --stacks
    #[arg(long, requires = "stacks", default_value = "8K", value_name = "SIZE")]
    #[arg(value_parser = parse_stack_bytes)]
    pub(super) stack_bytes: u32,

    /// Run the command alternately with and without recording, and report the difference
    #[arg(long, requires = "command")]
    pub(super) check: bool,

    /// Number of runs with and without recording, for --check
    #[arg(long, requires = "check", default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..1000))]
    pub(super) rounds: u32,

    /// Command to run and record
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<String>,
}

/// Parses a number of bytes that the kernel copies: a sample has less than 64 KiB.
fn parse_stack_bytes(text: &str) -> Result<u32, String> {
    const MAX: u64 = 63 << 10;
    let bytes = format::parse_size(text)?;
    match bytes {
        512..=MAX if bytes % 8 == 0 => Ok(bytes as u32),
        _ => Err("name a multiple of 8 from 512 to 63K".to_owned()),
    }
}

/// The behavior when a buffer fills.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ModeArg {
    /// Write records continuously; when a buffer is full, lose new records and count them
    Stream,
    /// Overwrite the oldest records; write what is in the buffers at the end
    Flight,
    /// Stop all processors to write full buffers; lose nothing, and report the time
    Dump,
}
