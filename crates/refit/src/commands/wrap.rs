//! `refit wrap` and `refit unwrap`: code around objects, and away with it.

use std::collections::BTreeMap;

use clap::CommandFactory;
use clap::error::ErrorKind;
use refit_instance::wire::{Unwrap, Wrap};

use crate::cli::{Cli, UnwrapArgs, WrapArgs};
use crate::commands::swap::{begin, follow, judge};
use crate::failure::Failure;
use crate::instances;
use crate::output::Output;

/// Wraps everything that matches and that the wrapper fits, on every instance that has it.
pub(crate) fn wrap(args: &WrapArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let options = options(&args.options)?;
    let request = Wrap {
        glob: args.glob.clone(),
        wrapper: args.wrapper.clone(),
        options,
        mount: args.mount.clone(),
    };
    let asked = format!("wrap {} in {}", args.glob, args.wrapper);
    let live = instances::live(&asked, only)?;
    instances::unambiguous(&asked, &live, &args.glob, args.mount.as_deref())?;
    let begun = begin(&live, |client| client.wrap(&request))?;
    let expected = begun.iter().filter_map(|(_, lines)| lines.expected()).sum();
    let tally = follow(begun, expected, "wrapped", out)?;
    end(asked, &tally, expected, out)
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
    let asked = match &args.wrapper {
        Some(wrapper) => format!("unwrap {} of {wrapper}", args.glob),
        None => format!("unwrap {}", args.glob),
    };
    let live = instances::live(&asked, only)?;
    instances::unambiguous(&asked, &live, &args.glob, args.mount.as_deref())?;
    let begun = begin(&live, |client| client.unwrap(&request))?;
    let expected = begun.iter().filter_map(|(_, lines)| lines.expected()).sum();
    let tally = follow(begun, expected, "unwrapped", out)?;
    end(asked, &tally, expected, out)
}

fn end(
    asked: String,
    tally: &crate::tally::Tally,
    expected: u64,
    out: &mut Output,
) -> Result<(), Failure> {
    if !out.json() && expected > crate::commands::swap::FEW {
        out.line(&format!("{}; {}", tally.ends(), tally.times.summary()))?;
    }
    judge(asked, tally, expected, out)
}

/// `key=value`, each key once.
fn options(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let wrong =
        |text: String| Failure::Usage(Cli::command().error(ErrorKind::ValueValidation, text));
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
