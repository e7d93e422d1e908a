//! `refit tend`: runs the instance of a program that `refit run` is about to become.
//!
//! It communicates with `refit run` over its standard input and output: it prints its number; a
//! line arrives when it may trace; then it prints [`FOLLOWS`], or the reason of a failure. From
//! then on it is silent, and holds nothing of the program: no descriptor, no directory, no
//! terminal. It ends when all of the program's processes have; if it is told to end before, they
//! are killed.
//!
//! Once, when the program ends, it may print a message about violations of the limit ([`remark`]),
//! at the last moment at which the program's standard error exists ([`standard_error`]).

mod remark;
mod standard_error;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use refit_instance::{Instance, InstanceOptions, SocketDirectory, host_of};
use refit_limits::Memory;
use refit_tracer::Supervisor;
use rustix::fs::{Mode, OFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use standard_error::StandardError;

/// The line that reports that no task of the program can escape any more.
pub(crate) const FOLLOWS: &str = "follows";

/// The directory of the swap file, for pages that take too much memory compressed.
pub(crate) const SWAP: &str = "/var/tmp";

/// Runs the instance.
pub(crate) fn run(process: u32, limit: Option<u64>, movable: bool) -> Result<(), Failure> {
    let say = |line: &str| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    };
    say(&std::process::id().to_string())?;
    io::stdin().read_line(&mut String::new())?;
    // If this point was reached, the process that could be told is now the program.
    let supervisor = if movable { Supervisor::of_movable() } else { Supervisor::default() };
    tend(process, limit, supervisor, say).or_else(|why| say(&why)).map_err(Failure::from)
}

fn tend(
    process: u32,
    limit: Option<u64>,
    supervisor: Supervisor,
    say: impl Fn(&str) -> io::Result<()>,
) -> Result<(), String> {
    let supervisor = Arc::new(supervisor);
    let memory = match Memory::new(Arc::clone(&supervisor), Path::new(SWAP)) {
        Ok(memory) => Some(Arc::new(memory)),
        // A program without a limit does not need it.
        Err(_) if limit.is_none() => None,
        Err(error) => return Err(error.to_string()),
    };
    if let Some(memory) = &memory {
        memory.allow(limit).map_err(|e| e.to_string())?;
    }
    let directory = SocketDirectory::open().map_err(|e| e.to_string())?;
    let log = directory.log(std::process::id());
    // It holds the tree, and ends with the instance.
    let known = memory.as_ref().map(Arc::downgrade);
    let instance = start(directory, &log, &supervisor, memory)?;
    let ready = || {
        if let Some((memory, error)) = known.zip(StandardError::of(process)) {
            supervisor.before_end(move |_| {
                if let Some(memory) = memory.upgrade() {
                    remark::say(&error, &memory.take_warnings(), SWAP);
                }
            });
        }
        say(FOLLOWS).and_then(|()| be_silent(&log))
    };
    let result = supervisor.follow(process, ready);
    end(&instance, &log);
    result.map_err(|e| e.to_string())
}

type Shared = Arc<Mutex<Option<Instance>>>;

fn start(
    directory: SocketDirectory,
    log: &Path,
    supervisor: &Arc<Supervisor>,
    memory: Option<Arc<Memory>>,
) -> Result<Shared, String> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| e.to_string())?;
    let log = log.to_owned();
    let options = InstanceOptions::at(directory);
    let host = host_of(Arc::clone(supervisor), memory);
    let instance = Instance::start(host, options).map_err(|e| e.to_string())?;
    let instance = Arc::new(Mutex::new(Some(instance)));
    let ending = Arc::clone(&instance);
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            end(&ending, &log);
            // The kernel kills the tracees.
            std::process::exit(0);
        }
    });
    Ok(instance)
}

/// Ends the instance. A log with contents stays.
fn end(instance: &Shared, log: &Path) {
    drop(instance.lock().take());
    if log.metadata().is_ok_and(|log| log.len() == 0) {
        let _ = std::fs::remove_file(log);
    }
}

/// Closes the streams that were needed for the start. A panic is written to the log.
fn be_silent(log: &Path) -> io::Result<()> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let create = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let log = rustix::fs::open(log, create, Mode::RUSR | Mode::WUSR)?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}
