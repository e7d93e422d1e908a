//! `refit boot`, `refit instances`, `refit shutdown`: several kernel instances that make one system.
//!
//! Each is a process of its own ([`be`]), in a session of its own, with processors of its own. They find each other by their sockets in
//! the runtime directory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;
use refit_instance::wire::KernelInfo;
use refit_instance::{Instance, InstanceOptions, SocketDirectory, host_of_kernel};
use refit_tasks::Kernel;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::instances::{self, Live};
use crate::output::Output;
use crate::processors;
use crate::table::{Align, Table};

/// What an instance says when others may count on it.
const SERVES: &str = "serves";

/// Arguments of `refit boot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit boot --instances 2
  refit run --on 0 --movable -- ./solver &
  refit move $! 1
  refit instances
  refit shutdown

Without --cpus the processors of this machine are dealt out in turn. An instance whose program's threads run elsewhere cannot be \
shut down without ending that program.")]
pub(crate) struct BootArgs {
    /// How many
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    instances: u16,
    /// The processors of each, e.g. 0-3/4-7
    #[arg(long, value_name = "LIST/LIST…")]
    cpus: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    instance: u32,
    #[serde(flatten)]
    kernel: &'a KernelInfo,
}

/// Boots.
pub(crate) fn run(args: &BootArgs, out: &mut Output) -> Result<(), Failure> {
    let running: Vec<u16> = kernels(None)?.iter().map(|(_, kernel)| kernel.number).collect();
    if let Some(one) = (0..args.instances).find(|number| running.contains(number)) {
        return Err(Failure::new(
            format!("boot {} instances", args.instances),
            format!("instance {one} is running"),
            "end those that run with `refit shutdown`",
        ));
    }
    let shares = shares(args)?;
    for (number, share) in (0..args.instances).zip(&shares) {
        let asked = format!("boot instance {number}");
        if let Err(error) = begin(number, share) {
            let remedy = "see `refit doctor` for what this host permits";
            return Err(Failure::new(asked, error.to_string(), remedy));
        }
    }
    list(None, out)
}

/// The processors of each.
fn shares(args: &BootArgs) -> Result<Vec<String>, Failure> {
    let count = usize::from(args.instances);
    let Some(lists) = &args.cpus else {
        let all = processors::own();
        let share = |one: usize| {
            let own: Vec<usize> = all.iter().copied().skip(one).step_by(count).collect();
            // With fewer processors than instances some share.
            if own.is_empty() { all.clone() } else { own }
        };
        return Ok((0..count).map(|one| processors::list(&share(one))).collect());
    };
    let lists: Vec<String> = lists.split('/').map(str::to_owned).collect();
    let asked = || format!("give processors to {count} instances");
    if lists.len() != count {
        let obstacle = format!("{} lists of processors were given", lists.len());
        return Err(Failure::new(asked(), obstacle, "give one for each, e.g. --cpus 0/1"));
    }
    for list in &lists {
        if let Err(obstacle) = processors::parse(list) {
            return Err(Failure::new(
                asked(),
                obstacle,
                "name processors of this machine, e.g. 0-3",
            ));
        }
    }
    Ok(lists)
}

/// Starts one, and waits until it serves.
fn begin(number: u16, processors: &str) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0("refit").args(["kernel", &number.to_string(), processors]).current_dir("/");
    let (_, says) = refit_sys::launch::apart(&mut command)?;
    let line = BufReader::new(says).lines().next();
    match line.unwrap_or_else(|| Err(io::Error::other("it has ended at once")))? {
        serves if serves == SERVES => Ok(()),
        why => Err(io::Error::other(why)),
    }
}

/// Is an instance, until it is told to end: what `refit boot` starts.
pub(crate) fn be(number: u16, processors: &str) -> Result<(), Failure> {
    let say = |line: &str| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    };
    let begun = serve(number, processors);
    match begun {
        Ok(instance) => {
            let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
            say(SERVES)?;
            be_silent()?;
            signals.forever().next();
            drop(instance);
            // The kernel kills what is followed.
            std::process::exit(0);
        }
        Err(why) => say(&why).map_err(Failure::from),
    }
}

fn serve(number: u16, processors: &str) -> Result<Instance, String> {
    let own = processors::parse(processors)?;
    processors::bind(&own).map_err(|e| e.to_string())?;
    let directory = SocketDirectory::open().map_err(|e| e.to_string())?;
    let kernel = Kernel::boot(number, directory.path()).map_err(|e| e.to_string())?;
    let system = host_of_kernel(kernel, own);
    Instance::start(system, InstanceOptions::at(directory)).map_err(|e| e.to_string())
}

/// Lets go of what was for the beginning. A panic is told in the log.
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

/// Instances that are of several.
pub(crate) fn kernels(only: Option<u32>) -> Result<Vec<(Live, KernelInfo)>, Failure> {
    let mut found = Vec::new();
    for live in instances::answering(only)? {
        if let Some(kernel) = live.client.kernel()? {
            found.push((live, kernel));
        }
    }
    found.sort_by_key(|(_, kernel)| kernel.number);
    Ok(found)
}

/// Lists them.
pub(crate) fn list(only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("NUMBER", Align::Right),
        ("INSTANCE", Align::Right),
        ("CPUS", Align::Left),
        ("PEERS", Align::Left),
        ("PROCESSES", Align::Right),
    ]);
    let all = kernels(only)?;
    if all.is_empty() {
        let remedy = "start some with `refit boot --instances 2`";
        return Err(Failure::new("list instances", "there are none that make one system", remedy));
    }
    for (Live { pid, client }, kernel) in &all {
        if out.json() {
            out.object(&Line { instance: *pid, kernel })?;
            continue;
        }
        let peers: Vec<String> = kernel.peers.iter().map(u16::to_string).collect();
        table.row(vec![
            kernel.number.to_string(),
            pid.to_string(),
            processors::list(&kernel.processors),
            peers.join(","),
            client.processes()?.len().to_string(),
        ]);
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

/// Ends all of them.
pub(crate) fn shutdown(kill: bool, only: Option<u32>) -> Result<(), Failure> {
    let all = kernels(only)?;
    if all.is_empty() {
        let remedy = "start some with `refit boot --instances 2`";
        return Err(Failure::new(
            "shut down",
            "there are no instances that make one system",
            remedy,
        ));
    }
    for (Live { client, .. }, kernel) in &all {
        if let Some(process) = client.processes()?.first()
            && !kill
        {
            return Err(Failure::new(
                "shut down",
                format!("process {} runs under instance {}", process.pid, kernel.number),
                "wait for it, or kill what runs with `refit shutdown --kill`",
            ));
        }
    }
    for (Live { pid, .. }, _) in &all {
        processors::end(*pid);
    }
    Ok(())
}
