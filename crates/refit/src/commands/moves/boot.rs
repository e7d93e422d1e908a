//! `refit boot`, `refit instances`, `refit shutdown`: several kernel instances that make one
//! system.
//!
//! Each instance is a process of its own ([`be`]), in a session of its own, with processors of its
//! own. They find each other by their sockets in the runtime directory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;
use refit_instance::wire::{KernelInfo, LostInfo, OwnedInfo, PeerInfo, ReachedInfo};
use refit_instance::{Client, Instance, InstanceOptions, SocketDirectory, host_of_kernel};
use refit_migrate::{BootError, MessageError, Node, Refusal};
use refit_sys::thread::EndedEarly;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::processors;
use super::setting::SettingArgs;
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::logging;
use crate::output::Output;
use crate::table::{Align, Table};

/// The line with which an instance reports that others may rely on it. Otherwise it prints the
/// reason and the remedy.
const SERVES: &str = "serves";
const DOCTOR: &str = "see `refit doctor` for what this host permits";

/// Arguments of `refit boot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit boot --instances 2
  refit run --on 0 --movable -- ./solver &
  refit move $! 1
  refit instances
  refit shutdown

Without --cpus, boot assigns the processors of this host to the instances in turn. Shutting down an instance from which threads \
have moved ends their programs. With --memory 2G, a thread that would need more than 2 GiB of an instance continues where its \
program began.\n\n\
On several hosts, each with instance numbers of its own:\n  \
refit boot --instances 1 --number 0 --listen 10.0.0.1:7383 --authority ca.pem --certificate a.pem --key a.key\n  \
refit boot --instances 1 --number 1 --join 10.0.0.1:7383 --authority ca.pem --certificate b.pem --key b.key")]
pub(crate) struct BootArgs {
    /// Number of instances
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    instances: u16,
    /// Processors of each instance, e.g. 0-3/4-7 (default: the processors of this host in turn)
    #[arg(long, value_name = "LIST/LIST…")]
    cpus: Option<String>,
    /// Number of the first instance
    #[arg(long, default_value_t = 0)]
    number: u16,
    #[command(flatten)]
    setting: SettingArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    kernel: &'a KernelInfo,
}

/// Boots instances.
pub(crate) fn run(args: &BootArgs, out: &mut Output) -> Result<(), Failure> {
    let running: Vec<u16> = kernels(None)?.iter().map(|(_, kernel)| kernel.number).collect();
    let numbers = args.number..args.number.saturating_add(args.instances);
    if let Some(one) = numbers.clone().find(|number| running.contains(number)) {
        return Err(Failure::new(
            format!("boot {} instances", args.instances),
            format!("instance {one} is running"),
            "shut down running instances with `refit shutdown`",
        ));
    }
    let shares = shares(args)?;
    for ((place, number), share) in (0..).zip(numbers).zip(&shares) {
        let operation = format!("boot instance {number}");
        if let Err((error, remedy)) = begin(number, share, &args.setting.of(place)) {
            return Err(Failure::new(operation, error, remedy));
        }
    }
    list(None, out)
}

/// Returns the processors of each instance.
fn shares(args: &BootArgs) -> Result<Vec<String>, Failure> {
    let count = usize::from(args.instances);
    let Some(lists) = &args.cpus else {
        let all = processors::own();
        let share = |one: usize| {
            let own: Vec<usize> = all.iter().copied().skip(one).step_by(count).collect();
            // With fewer processors than instances, some instances share.
            if own.is_empty() { all.clone() } else { own }
        };
        return Ok((0..count).map(|one| processors::list(&share(one))).collect());
    };
    let lists: Vec<String> = lists.split('/').map(str::to_owned).collect();
    let operation = || format!("assign processors to {count} instances");
    if lists.len() != count {
        let obstacle = format!("--cpus has {} lists of processors", lists.len());
        return Err(Failure::new(
            operation(),
            obstacle,
            "give one list for each instance, e.g. --cpus 0/1",
        ));
    }
    for list in &lists {
        if let Err(obstacle) = processors::parse(list) {
            return Err(Failure::new(
                operation(),
                obstacle,
                "give processors of this host, e.g. 0-3",
            ));
        }
    }
    Ok(lists)
}

/// Starts an instance, and waits until it serves.
///
/// # Errors
///
/// The reason that it does not, and the remedy.
fn begin(number: u16, processors: &str, setting: &SettingArgs) -> Result<(), (String, String)> {
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0("refit").args(["kernel", &number.to_string(), processors]);
        command.args(setting.arguments()?).current_dir("/");
        logging::hand_on(&mut command);
        Ok(BufReader::new(refit_sys::launch::apart(&mut command)?.1).lines())
    };
    let unable = |error: io::Error| (error.to_string(), DOCTOR.to_owned());
    let mut output = start().map_err(unable)?;
    match output.next().transpose().map_err(unable)? {
        None => Err((EndedEarly("it").to_string(), DOCTOR.to_owned())),
        Some(serves) if serves == SERVES => Ok(()),
        Some(why) => {
            let remedy = output.next().and_then(Result::ok);
            Err((why, remedy.unwrap_or_else(|| DOCTOR.to_owned())))
        }
    }
}

/// Runs an instance until it is told to end: the process that `refit boot` starts.
pub(crate) fn be(number: u16, processors: &str, setting: &SettingArgs) -> Result<(), Failure> {
    let say = |line: &str| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    };
    let begun = serve(number, processors, setting);
    match begun {
        Ok(instance) => {
            let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
            say(SERVES)?;
            be_silent()?;
            signals.forever().next();
            drop(instance);
            // The kernel kills the tracees.
            std::process::exit(0);
        }
        Err((why, remedy)) => say(&format!("{why}\n{remedy}")).map_err(Failure::from),
    }
}

/// The reason that an instance cannot run, and the remedy, one line each.
type Unable = (String, &'static str);

fn serve(number: u16, processors: &str, setting: &SettingArgs) -> Result<Instance, Unable> {
    let no = |error: &dyn std::fmt::Display| (error.to_string(), DOCTOR);
    let own = processors::parse(processors).map_err(|e| no(&e))?;
    processors::bind(&own).map_err(|e| no(&e))?;
    let directory = SocketDirectory::open().map_err(|e| no(&e))?;
    let setting = setting.setting();
    let kernel = Node::boot(number, directory.path(), &setting);
    let kernel = kernel.map_err(|error| (error.to_string(), remedy(&error)))?;
    let system = host_of_kernel(kernel, own);
    Instance::start(system, InstanceOptions::at(directory)).map_err(|e| no(&e))
}

/// Returns the remedy if an instance cannot join others.
fn remedy(error: &BootError) -> &'static str {
    match error {
        BootError::Messages(MessageError::Refused { why: Refusal::Encrypted, .. }) => {
            "give `--authority`, `--certificate` and `--key`, as the other host does"
        }
        BootError::Messages(MessageError::Insecure(_)) => {
            "give `--authority`, `--certificate` and `--key`, or `--insecure`"
        }
        _ => DOCTOR,
    }
}

/// Closes the streams that were needed for the start. A panic is written to the log.
fn be_silent() -> io::Result<()> {
    let directory = SocketDirectory::open().map_err(io::Error::other)?;
    let log = directory.log(std::process::id());
    let log = File::options().append(true).create(true).open(log)?;
    let nothing = File::options().read(true).write(true).open(Path::new("/dev/null"))?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}

/// Returns the instances that are part of a system of several.
pub(crate) fn kernels(only: Option<u32>) -> Result<Vec<(Live, KernelInfo)>, Failure> {
    let mut found = Vec::new();
    for live in instances::answering(only)? {
        if let Some(Some(kernel)) = live.says(Client::kernel)? {
            found.push((live, kernel));
        }
    }
    found.sort_by_key(|(_, kernel)| kernel.number);
    Ok(found)
}

/// Lists the instances.
pub(crate) fn list(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("NUMBER", Align::Right),
        ("INSTANCE", Align::Right),
        ("CPUS", Align::Left),
        ("PROCESSES", Align::Right),
        ("MEMORY", Align::Right),
        ("ADDRESS", Align::Left),
        ("PEERS", Align::Left),
    ]);
    let all = kernels(only)?;
    if all.is_empty() {
        let remedy = "start some with `refit boot --instances 2`";
        return Err(Failure::new("list instances", "no booted instance is running", remedy));
    }
    for (live, kernel) in &all {
        let Some(processes) = live.says(Client::processes)? else { continue };
        if out.json() {
            out.object(&Line { instance: live.pid, kernel })?;
            continue;
        }
        let peers = kernel.peers.iter().map(reached);
        let peers: Vec<String> = peers.chain(kernel.lost.iter().map(lost)).collect();
        table.row(vec![
            kernel.number.to_string(),
            live.pid.to_string(),
            processors::list(&kernel.processors),
            processes.len().to_string(),
            memory(kernel.memory),
            kernel.address.clone().unwrap_or_else(|| "-".to_owned()),
            peers.join(", "),
        ]);
    }
    if out.json() {
        return Ok(());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

/// Returns, in words, how much of its memory for programs that move is in use.
fn memory(OwnedInfo { used, owned }: OwnedInfo) -> String {
    let used = format::size(used);
    owned.map_or_else(|| used.clone(), |owned| format!("{used} of {}", format::size(owned)))
}

/// Returns, in words, by which transport another instance is reached, and for how long.
fn reached(peer: &PeerInfo) -> String {
    let PeerInfo { number, reached, place, seconds } = peer;
    match reached {
        ReachedInfo::Memory => format!("{number} {reached} {seconds} s"),
        ReachedInfo::Tcp | ReachedInfo::Tls => format!("{number} {reached} {place} {seconds} s"),
    }
}

/// Returns, in words, since when and why an instance is lost, and whether this one joins it again.
fn lost(one: &LostInfo) -> String {
    let LostInfo { number, why, seconds, dials } = one;
    let again = dials.as_ref().map(|at| format!(", will rejoin when {at} answers"));
    format!("{number} lost {seconds} s ago ({why}){}", again.unwrap_or_default())
}

/// Ends all instances of the system.
pub(crate) fn shutdown(kill: bool, only: Option<u32>) -> Result<(), Failure> {
    let all = kernels(only)?;
    if all.is_empty() {
        let remedy = "start some with `refit boot --instances 2`";
        return Err(Failure::new("shut down", "no booted instance is running", remedy));
    }
    for (live, kernel) in &all {
        if let Some(process) = live.says(Client::processes)?.unwrap_or_default().first()
            && !kill
        {
            return Err(Failure::new(
                "shut down",
                format!("process {} runs under instance {}", process.pid, kernel.number),
                "wait for it to end, or kill all programs with `refit shutdown --kill`",
            ));
        }
    }
    for (Live { pid, .. }, _) in &all {
        processors::end(*pid);
    }
    Ok(())
}
