//! Arguments of `refit optimize`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;
use refit_optimize::{Options, stored};

use crate::commands::code::proof::progress;
use crate::failure::Failure;
use crate::format;

/// Arguments of `refit optimize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit optimize -p 4711
  refit optimize -p 4711 --progress 'uprobe:mariadbd:*dispatch_command*'
  refit optimize -p 4711 --undo
  refit optimize --dry-run --for 2s -- cc1plus -O2 a.ii -o a.s
  refit optimize --run -- cc1plus -O2 a.ii -o a.s

Counts how often each block of the hot functions runs, copies the hot blocks in an order in which most jumps fall through, and leads the program there. \
Control enters and leaves the copies many times while the program's progress for its processor time is measured; the copies stay only if they pay. \
They stay after refit has ended, and `refit optimize --undo` or `refit repair` takes them out. \
The counts are added to the profile of the binary, which is stored by its build id for --from-profile and --run.")]
pub(crate) struct OptimizeArgs {
    /// Process ID of the program
    #[arg(short, long, value_name = "PID", required_unless_present = "command")]
    #[arg(conflicts_with = "command")]
    pub(super) pid: Option<u32>,

    /// Time to profile the program
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME", default_value = "3s")]
    pub(super) time: Duration,

    /// Optimize this file: a part of its path [default: the program's own]
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<String>,

    /// Optimize these functions and what they call: a name, with * and ? as wildcards
    #[arg(long, value_name = "FUNCTION")]
    pub(super) func: Option<String>,

    /// Measure progress by this place, as in `refit probe` [default: a function that is found]
    #[arg(long, value_name = "PLACE")]
    pub(super) progress: Option<String>,

    /// Time of each measurement; there are four in a round, and 20 to 120 rounds
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME", default_value = "25ms")]
    pub(super) slot: Duration,

    /// Do not measure what copies in the old order gain
    #[arg(long)]
    pub(super) no_placebo: bool,

    /// Only profile the program, store the profile, and say what would be copied
    #[arg(long, conflicts_with_all = ["undo", "status"])]
    pub(super) dry_run: bool,

    /// Keep the copies without measuring what they gain
    #[arg(long, conflicts_with_all = ["undo", "status", "dry_run"])]
    pub(super) unproved: bool,

    /// Do not count, but use the stored profile of the binary
    #[arg(long, conflicts_with_all = ["undo", "status"])]
    pub(super) from_profile: bool,

    /// Start COMMAND with its code laid out from the stored profile, before its first instruction
    #[arg(long, requires = "command", conflicts_with_all = ["undo", "status", "dry_run", "progress"])]
    pub(super) run: bool,

    /// Draw the cache lines of the hot code, before and after, to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["undo", "status"])]
    pub(super) svg: Option<PathBuf>,

    /// Take the copies out again
    #[arg(long, requires = "pid", conflicts_with = "status")]
    pub(super) undo: bool,

    /// Say whether the program is optimised
    #[arg(long, requires = "pid")]
    pub(super) status: bool,

    /// Program to start
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

impl OptimizeArgs {
    /// Returns the options of the library.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        Ok(Options {
            profile: self.time,
            file: self.file.clone(),
            functions: self.func.clone(),
            progress: progress(self.progress.as_deref())?,
            slot: self.slot,
            placebo: if self.no_placebo { 0 } else { Options::default().placebo },
            rehearse: self.dry_run,
            unproved: self.unproved || self.run,
            profiles: stored::directory(),
            from_profile: self.from_profile || self.run,
            footprints: self.svg.is_some(),
        })
    }
}
