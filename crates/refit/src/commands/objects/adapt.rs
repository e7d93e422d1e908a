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

adapt attaches the wrappers `sequential` and `concurrency` to each cache that works, to measure the share of accesses that are sequential \
and of calls that begin while another is inside. If a share is high, it swaps the cache: to `sequential`, which evicts pages soon after use \
and so leaves memory to other caches, or to `partitioned`, which has a lock for each processor. If the share is low, it swaps the cache back. It \
undoes a swap after which the cache does worse. When it ends, it restores all caches and detaches the wrappers.")]
pub(crate) struct AdaptArgs {
    /// Name of a cache, or a pattern; objects other than caches are ignored
    #[arg(value_name = "OBJECT|GLOB", default_value = "*")]
    glob: String,

    /// Sampling interval
    #[arg(long, default_value = "100ms", value_parser = format::parse_duration, value_name = "TIME")]
    every: Duration,

    /// Swap to `sequential` if at least this share of accesses, in percent, is sequential
    #[arg(long, default_value = "90", value_parser = clap::value_parser!(u64).range(0..=100))]
    #[arg(value_name = "PERCENT")]
    above: u64,

    /// Swap back if less than this share of accesses, in percent, is sequential
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u64).range(0..=100))]
    #[arg(value_name = "PERCENT")]
    below: u64,

    /// Swap to `partitioned` if at least this share of calls, in percent, overlaps another
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u64).range(0..=100))]
    #[arg(value_name = "PERCENT")]
    overlap_above: u64,

    /// Swap back if less than this share of calls, in percent, overlaps another
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(0..=100))]
    #[arg(value_name = "PERCENT")]
    overlap_below: u64,

    /// End after this time (default: at Ctrl-C)
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
        overlapping_above_percent: args.overlap_above,
        overlapping_below_percent: args.overlap_below,
        for_ms: args.time.map(swap::millis),
    };
    let operation = format!("adapt {}", args.glob);
    let live = instances::live(&operation, only)?;
    let begun = swap::begin(&live, |client| client.adapt(&request))?;
    let tally = swap::until_interrupted(begun, true, out)?;
    swap::judge(operation, &tally, tally.total(), out)
}
