//! `refit adapt`: have caches swapped by how they are used.

use std::time::Duration;

use clap::Args;
use refit_instance::wire::Adapt;

use super::swap;
use crate::failure::Failure;
use crate::format;
use crate::instances;
use crate::output::Output;

/// Arguments of `refit adapt`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit adapt &
  refit adapt 'fcm:/logs/*' --for 10m
  refit adapt 'anonymous:4711/*' --every 50ms --above 95 --below 60

A cache in which pages are missed gets the wrapper `sequential`, which tells what part of its accesses follow each other. If most do, it \
is swapped to `sequential`, which gives up pages soon after they have been used, so that others keep theirs; if few do, back. A swap \
after which more pages are missed is undone. When the command ends, caches are what they were, and the wrappers go.")]
pub(crate) struct AdaptArgs {
    /// Name of a cache, or a pattern; others than caches are left out
    #[arg(value_name = "OBJECT|GLOB", default_value = "*")]
    glob: String,

    /// Time between two looks
    #[arg(long, default_value = "100ms", value_parser = format::parse_duration, value_name = "TIME")]
    every: Duration,

    /// Swap where so much of the accesses, in percent, follow each other
    #[arg(long, default_value = "90", value_parser = clap::value_parser!(u64).range(0..=100))]
    #[arg(value_name = "PERCENT")]
    above: u64,

    /// Swap back where less do
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u64).range(0..=100))]
    #[arg(value_name = "PERCENT")]
    below: u64,

    /// End after this time; else at Ctrl-C
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    time: Option<Duration>,
}

/// Adapts until it is interrupted; a line for each change.
pub(crate) fn run(args: &AdaptArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let request = Adapt {
        glob: args.glob.clone(),
        every_ms: swap::millis(args.every),
        above_percent: args.above,
        below_percent: args.below,
        for_ms: args.time.map(swap::millis),
    };
    let operation = format!("adapt {}", args.glob);
    let live = instances::live(&operation, only)?;
    let begun = swap::begin(&live, |client| client.adapt(&request))?;
    let tally = swap::until_interrupted(begun, true, out)?;
    swap::judge(operation, &tally, tally.total(), out)
}
