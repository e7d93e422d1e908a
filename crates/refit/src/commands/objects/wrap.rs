//! `refit wrap` and `refit unwrap`: code around objects, and away with it.

use std::collections::BTreeMap;

use clap::Args;
use clap::error::ErrorKind;
use refit_instance::wire::{Unwrap, Wrap};

use super::swap::{begin, follow, judge};
use crate::failure::Failure;
use crate::instances;
use crate::output::Output;

/// Arguments of `refit wrap`.
#[derive(Debug, Args)]
#[command(after_help = "\
Wrappers and their options:
  count         calls, errors and panics of each method
  latency       duration of each method [method=NAME]
  concurrency   number of concurrent calls [method=NAME]
  sequential    share of sequential accesses [method=NAME] [offset=ARGUMENT] [length=ARGUMENT] [unit=N]
  arguments     distribution of the values of an argument: argument=NAME [method=NAME]
  fault         delays calls or makes them fail [delay=TIME] [error=ERRNO] [every=N] [method=NAME]

`refit show` shows the results, and `refit show -f` updates them. Wrappers stack, and stay attached when the object is swapped.

Example:
  refit wrap 'fcm:/logs/*' latency method=read
  refit wrap fcm:/logs/a fault error=5 every=100 method=read")]
pub(crate) struct WrapArgs {
    /// Name of an object, or a pattern
    #[arg(value_name = "OBJECT|GLOB")]
    glob: String,

    /// Wrapper to attach
    #[arg(value_name = "WRAPPER")]
    wrapper: String,

    /// Option of the wrapper
    #[arg(value_name = "KEY=VALUE")]
    options: Vec<String>,

    /// Select only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<String>,
}

/// Arguments of `refit unwrap`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit unwrap 'fcm:/logs/*' latency\n  refit unwrap '*' --all")]
pub(crate) struct UnwrapArgs {
    /// Name of an object, or a pattern
    #[arg(value_name = "OBJECT|GLOB")]
    glob: String,

    /// Name of the wrapper, or its number in `refit show`
    #[arg(value_name = "WRAPPER", required_unless_present = "all")]
    wrapper: Option<String>,

    /// Detach all wrappers
    #[arg(long, conflicts_with = "wrapper")]
    all: bool,

    /// Select only objects of the mount at this mountpoint
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<String>,
}

/// Wraps everything that matches and that the wrapper fits, on every instance that has it.
pub(crate) fn wrap(args: &WrapArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let options = options(&args.options)?;
    let request = Wrap {
        glob: args.glob.clone(),
        wrapper: args.wrapper.clone(),
        options,
        mount: args.mount.clone(),
    };
    let operation = format!("wrap {} in {}", args.glob, args.wrapper);
    let live = instances::live(&operation, only)?;
    instances::unambiguous(&operation, &live, &args.glob, args.mount.as_deref())?;
    let begun = begin(&live, |client| client.wrap(&request))?;
    let expected = begun.iter().filter_map(|(_, lines)| lines.expected()).sum();
    let tally = follow(begun, expected, "wrapped", out)?;
    end(operation, &tally, expected, out)
}

/// Takes wrappers away from everything that matches and has them.
pub(crate) fn unwrap(
    args: &UnwrapArgs,
    only: Option<u32>,
    out: &mut Output,
) -> Result<(), Failure> {
    let request = Unwrap {
        glob: args.glob.clone(),
        wrapper: args.wrapper.clone(),
        mount: args.mount.clone(),
    };
    let operation = match &args.wrapper {
        Some(wrapper) => format!("unwrap {} of {wrapper}", args.glob),
        None => format!("unwrap {}", args.glob),
    };
    let live = instances::live(&operation, only)?;
    instances::unambiguous(&operation, &live, &args.glob, args.mount.as_deref())?;
    let begun = begin(&live, |client| client.unwrap(&request))?;
    let expected = begun.iter().filter_map(|(_, lines)| lines.expected()).sum();
    let tally = follow(begun, expected, "unwrapped", out)?;
    end(operation, &tally, expected, out)
}

fn end(
    operation: String,
    tally: &super::tally::Tally,
    expected: u64,
    out: &mut Output,
) -> Result<(), Failure> {
    if !out.json() && expected > super::swap::FEW {
        out.line(&format!("{}; {}", tally.ends(), tally.times.summary()))?;
    }
    judge(operation, tally, expected, out)
}

/// `key=value`, each key once.
fn options(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let wrong = |text: String| Failure::usage(ErrorKind::ValueValidation, text);
    let mut options = BTreeMap::new();
    for text in given {
        let Some((key, value)) = text.split_once('=') else {
            return Err(wrong(format!("`{text}` is not an option; write key=value")));
        };
        if options.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(wrong(format!("{key} is given twice; give it once")));
        }
    }
    Ok(options)
}
