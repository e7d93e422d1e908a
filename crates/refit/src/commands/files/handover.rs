//! `refit handover`: another build of refit continues the mounts of an instance.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;
use refit_instance::Client;
use refit_instance::wire::{HandoverRequest, HandoverStatus};
use serde::Serialize;

use super::mounts;
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;

/// Arguments of `refit handover`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit handover /mnt/data
  refit handover --all --binary /opt/refit-next/bin/refit

The new program is prepared while the one before serves, and takes over between two requests. Programs that use \
the mounts only wait for some milliseconds. If anything fails (the program is broken, or too old for the state, or \
not ready in time), the server before goes on.")]
pub(crate) struct HandoverArgs {
    /// Directory on which it is mounted; all mounts of the same instance are handed over
    #[arg(required_unless_present = "all", value_hint = ValueHint::DirPath)]
    mountpoint: Option<PathBuf>,

    /// Hand over every instance of this user that has mounts
    #[arg(long, conflicts_with = "mountpoint")]
    all: bool,

    /// The program that takes over (default: the one of this command)
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    binary: Option<PathBuf>,

    /// The time that it has until it is ready, and once more until it serves
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = format::parse_duration)]
    timeout: Duration,
}

#[derive(Serialize)]
struct HandedOver<'a> {
    instance: u32,
    #[serde(flatten)]
    status: &'a HandoverStatus,
}

/// Hands over the instance that serves the mount point, or all.
pub(super) fn run(args: &HandoverArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let program = match &args.binary {
        Some(program) => absolute(program)?,
        None => own_program()?,
    };
    let operation = format!("hand over to {}", program.display());
    let timeout_ms = u64::try_from(args.timeout.as_millis()).ok();
    let request = HandoverRequest { program, timeout_ms };
    let mut refused = Vec::new();
    let instances = chosen(args, &operation, only)?;
    for Live { pid, client } in &instances {
        match client.hand_over(&request) {
            Ok(status) => tell(*pid, &request.program, &status, out)?,
            Err(refusal) => refused.push(refusal),
        }
    }
    match refused.pop() {
        None => Ok(()),
        Some(only) if refused.is_empty() => Err(only.into()),
        Some(last) => {
            refused.push(last);
            Err(Failure::Several(refused))
        }
    }
}

/// Returns the instances that are handed over.
fn chosen(args: &HandoverArgs, operation: &str, only: Option<u32>) -> Result<Vec<Live>, Failure> {
    let wanted = args.mountpoint.as_deref().map(mounts::absolute);
    let mut chosen = Vec::new();
    for live in instances::live(operation, only)? {
        let mounts = live.says(Client::mounts)?.unwrap_or_default();
        if mounts.iter().any(|mount| wanted.as_ref().is_none_or(|at| mount.mountpoint == *at)) {
            chosen.push(live);
        }
    }
    if chosen.is_empty() {
        let obstacle = match &args.mountpoint {
            Some(mountpoint) => format!("no instance serves {}", mountpoint.display()),
            None => "no instance has mounts".into(),
        };
        return Err(Failure::new(operation, obstacle, "list mounts with `refit mounts`"));
    }
    Ok(chosen)
}

fn tell(
    instance: u32,
    program: &Path,
    status: &HandoverStatus,
    out: &mut Output,
) -> Result<(), Failure> {
    if out.json() {
        return out.object(&HandedOver { instance, status });
    }
    let paused = status.last.as_ref().and_then(|last| last.paused_us).unwrap_or(0);
    out.line(&format!(
        "instance {instance} is served by {} (process {}); requests waited for {:.1} ms",
        program.display(),
        status.server,
        paused as f64 / 1000.0,
    ))
}

fn absolute(program: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(program).map_err(|error| {
        let operation = format!("hand over to {}", program.display());
        Failure::new(operation, error.to_string(), "name a program")
    })
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        let obstacle = format!("the path of this program is not known ({error})");
        Failure::new("hand over", obstacle, "name the program with --binary")
    })
}
