//! `refit run`: becomes a program that an instance tends.
//!
//! The instance is started first, beside this process ([`super::tend`]), and follows it; then this
//! process becomes the program. The program is therefore the process that the caller has started:
//! its number, parent, terminal, descriptors and exit code are its own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use clap::Args;
use clap::builder::ValueHint;

use refit_instance::wire::{FollowRequest, KernelInfo, RoamRequest};

use super::tend::FOLLOWS;
use crate::commands::moves::{boot, processors};
use crate::failure::Failure;
use crate::format;
use crate::instances::Live;
use crate::logging;

/// Arguments of `refit run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit run -- make -j2 &
  refit ps
  refit run --memory 64M -- python3 analysis.py
  refit run --movable -- redis-server

Exit code: the program's; 127 if it is not found, 126 if it cannot be executed, 1 if refit cannot trace it, limit its memory, or make it movable.")]
pub(crate) struct RunArgs {
    /// Limit the anonymous memory of the program and of every program it starts, e.g. 64M; pages
    /// above the limit are compressed or written to a swap file
    #[arg(long, value_parser = format::parse_memory, value_name = "SIZE")]
    memory: Option<u64>,
    /// Make the program, and every program it starts, movable: without vDSO and restartable
    /// sequences, and with the same addresses each time
    #[arg(long)]
    movable: bool,
    /// Run the program under this booted instance, on its processors, instead of under an instance
    /// of its own
    #[arg(long, value_name = "NUMBER", conflicts_with = "memory")]
    on: Option<u16>,
    /// Move its threads to the next instance automatically, for testing: at this interval, e.g.
    /// 10ms; `once`; or once, with a return for each system call (`syscall`)
    #[arg(long, value_name = "TIME|once|syscall", value_parser = roam, requires = "on", requires = "movable")]
    roam: Option<RoamRequest>,
    /// Distribute its threads, present and future, over all instances in turn, as `refit spread`
    /// does; the program sees the processors of all instances of this host
    #[arg(long, requires = "on", requires = "movable", conflicts_with = "roam")]
    spread: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

fn roam(text: &str) -> Result<RoamRequest, String> {
    match text {
        "once" => Ok(RoamRequest::Once),
        "syscall" => Ok(RoamRequest::Calls),
        time => format::parse_duration(time).map(|time| {
            RoamRequest::Every(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
        }),
    }
}

/// Becomes the program.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (program, arguments) = args.command.split_first().ok_or(Failure::Said)?;
    let operation = format!("run {}", program.display());
    // Only after the instance was started, which is to run as any other program.
    let movable = || if args.movable { refit_sys::launch::be_movable(args.spread) } else { Ok(()) };
    let followed = match args.on {
        Some(number) => on(args, number)?,
        None => tended(args),
    };
    let begun = followed.and_then(|()| Ok(movable()?));
    begun.map_err(|e| {
        let remedy = "see `refit doctor` for what this host permits";
        Failure::new(operation.as_str(), e.to_string(), remedy)
    })?;
    let error = refit_sys::launch::become_program(program, arguments);
    // The exit codes of env(1).
    let (code, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (127, "name a program that exists"),
        _ => (126, "name a program that you may execute"),
    };
    say!("{}", Failure::new(operation, error.to_string(), remedy));
    process::exit(code)
}

/// Makes a booted instance follow this process.
fn on(args: &RunArgs, number: u16) -> Result<Result<(), FollowError>, Failure> {
    let kernels = boot::kernels(None)?;
    let found = kernels.iter().find(|(_, kernel)| kernel.number == number);
    let Some((live, kernel)) = found else {
        let remedy =
            "list instances with `refit instances`, or start some with `refit boot --instances 2`";
        let why = "no running instance has this number";
        return Err(Failure::new(format!("run on {number}"), why, remedy));
    };
    refit_sys::launch::allow_tracer(live.pid);
    let roam = args.roam.or_else(|| args.spread.then_some(RoamRequest::Spread));
    let bound = processors::bind(&kernel.processors);
    let processors = args.spread.then(|| of_system(kernel, &kernels));
    let (pid, movable) = (process::id(), args.movable);
    live.client.follow(&FollowRequest { pid, movable, roam, processors })?;
    Ok(bound.map_err(FollowError::from))
}

/// Returns the processors of an instance, and those of all others on this host to which threads of
/// its programs can move.
fn of_system(own: &KernelInfo, all: &[(Live, KernelInfo)]) -> Vec<usize> {
    let peer = |one: &KernelInfo| own.peers.iter().any(|peer| peer.number == one.number);
    let others = all.iter().map(|(_, one)| one).filter(|one| peer(one));
    let all = others.chain([own]).flat_map(|one| one.processors.iter().copied());
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Why no instance follows this process.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Start(#[from] io::Error),
    #[error("its instance died")]
    Died,
    /// The instance's own words.
    #[error("{0}")]
    Refused(String),
}

/// Starts an instance that follows this process.
fn tended(args: &RunArgs) -> Result<(), FollowError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0("refit").args(["tend", &process::id().to_string()]).current_dir("/");
    if let Some(bytes) = args.memory {
        command.arg("--memory").arg(bytes.to_string());
    }
    command.args(args.movable.then_some("--movable"));
    logging::hand_on(&mut command);
    let (mut commands, output) = refit_sys::launch::apart(&mut command)?;
    let mut output = BufReader::new(output).lines();
    let mut line =
        || -> Result<String, FollowError> { Ok(output.next().ok_or(FollowError::Died)??) };
    let tender = line()?;
    if let Ok(tender) = tender.parse() {
        refit_sys::launch::allow_tracer(tender);
    }
    writeln!(commands)?;
    match line()? {
        follows if follows == FOLLOWS => Ok(()),
        refusal => Err(FollowError::Refused(refusal)),
    }
}
