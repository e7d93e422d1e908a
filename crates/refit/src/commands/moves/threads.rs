//! `refit move`, `refit spread`: threads run at another instance.

use std::str::FromStr;

use clap::Args;
use refit_instance::wire::MoveRequest;

use crate::commands::programs::process::{self, RunningProcess};
use crate::failure::Failure;

/// Arguments of `refit move`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit boot --instances 2
  refit run --on 0 --movable -- ./solver &
  refit move $! 1
  refit ps
  refit move $! 0

The program continues on the other instance's processors. Its process ID, files, sockets, signals and children do not change. \
If a move fails, the program continues where it was.")]
pub(crate) struct MoveArgs {
    /// Process to move, or one thread of it
    #[arg(value_name = "PID[/TID]")]
    whom: Whom,
    /// Number of the instance to move to
    to: u16,
}

/// A process, or one of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whom {
    pid: u32,
    thread: Option<u32>,
}

impl FromStr for Whom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let number = text.parse().ok().filter(|&number| number > 0);
            number.ok_or_else(|| format!("`{text}` is not a process or thread ID"))
        };
        Ok(match text.split_once('/') {
            Some((pid, thread)) => Self { pid: number(pid)?, thread: Some(number(thread)?) },
            None => Self { pid: number(text)?, thread: None },
        })
    }
}

/// Moves.
pub(crate) fn run(args: &MoveArgs, only: Option<u32>) -> Result<(), Failure> {
    let Whom { pid, thread } = args.whom;
    let RunningProcess { client, .. } = process::find(&format!("move {pid}"), pid, only)?;
    Ok(client.move_to(&MoveRequest { pid, thread, to: Some(args.to) })?)
}

/// Spreads.
pub(crate) fn spread(pid: u32, only: Option<u32>) -> Result<(), Failure> {
    let RunningProcess { client, .. } = process::find(&format!("spread {pid}"), pid, only)?;
    Ok(client.move_to(&MoveRequest { pid, thread: None, to: None })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_named_behind_its_process() {
        assert_eq!("12".parse(), Ok(Whom { pid: 12, thread: None }));
        assert_eq!("12/13".parse(), Ok(Whom { pid: 12, thread: Some(13) }));
        for text in ["", "0", "12/", "/12", "a", "1/2/3", "-1"] {
            assert!(text.parse::<Whom>().is_err(), "{text}");
        }
    }
}
