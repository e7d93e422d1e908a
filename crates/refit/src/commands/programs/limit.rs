//! `refit limit`: limits the memory of a running program and of all that it has started.

use std::str::FromStr;

use clap::Args;
use refit_instance::wire::LimitAnswer;
use serde::Serialize;

use super::process::{self, RunningProcess};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Arguments of `refit limit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit run -- python3 analysis.py &
  refit limit $! 128M
  refit show $!
  refit limit $! none

The limit counts anonymous memory; the kernel manages file pages as usual. refit evicts pages above the limit gradually, \
and returns each page when the program touches it.")]
pub(crate) struct LimitArgs {
    /// A process of the program
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,
    /// The limit, e.g. 128M, or `none` for no limit
    #[arg(value_name = "SIZE|none")]
    limit: Limit,
}

/// The limit; `None` for all memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u64>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Limit(None)),
            size => format::parse_memory(size).map(|bytes| Limit(Some(bytes))),
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    pid: u32,
    #[serde(flatten)]
    answer: &'a LimitAnswer,
}

/// Sets the limit, and prints the previous and the new one.
pub(crate) fn run(args: &LimitArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let LimitArgs { pid, limit: Limit(limit) } = *args;
    let RunningProcess { instance, client, .. } =
        process::find(&format!("limit {pid}"), pid, only)?;
    let answer = client.limit(limit)?;
    if out.json() {
        return out.object(&Line { instance, pid, answer: &answer });
    }
    let LimitAnswer { was_bytes, memory } = &answer;
    let (was, is) = (process::limit(*was_bytes), process::limit(memory.limit_bytes));
    out.line(&format!("limit {was} → {is}, for all programs under instance {instance}"))?;
    let resident = format::size(memory.resident_bytes);
    out.line(&format!("in memory {resident}; out {}", process::out_of_memory(&memory.store)))?;
    for refused in &memory.refused {
        out.line(&format!("not served: process {}: {}", refused.pid, refused.why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_all_there_is() {
        assert_eq!("none".parse(), Ok(Limit(None)));
        assert_eq!("64M".parse(), Ok(Limit(Some(64 << 20))));
        for text in ["", "0", "512K", "None", "-1", "64X"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }
}
