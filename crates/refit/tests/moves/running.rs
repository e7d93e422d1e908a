//! Runs one program to its end, with a time limit.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::world::World;

/// The time limit. It is not a performance test: a program that takes so long hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// The interval at which a running program is checked.
const LOOK: Duration = Duration::from_millis(2);

/// The exit status and the output of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Its exit code, or 128 and the signal that has ended it.
    pub(crate) code: i32,
    output: String,
    errors: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}, said {:?}", self.code, self.output)?;
        if self.errors.is_empty() { Ok(()) } else { write!(f, ", complained {:?}", self.errors) }
    }
}

/// Runs a program in a folder of its own, under the instances of a world if there is one; returns
/// the outcome, and the number of moves from outside.
pub(crate) fn run(command: &mut Command, world: Option<&World>) -> Result<(Ran, u64), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let [work, output, errors] = ["work", "output", "errors"].map(|name| folder.path().join(name));
    let create = |path: &Path| File::create(path).map_err(|error| error.to_string());
    fs::create_dir(&work).map_err(|error| error.to_string())?;
    // Files instead of pipes, so that processes that a program leaves behind do not delay the test.
    command.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
    let child = command.current_dir(&work).process_group(0).spawn();
    let mut child = child.map_err(|error| format!("{command:?}: {error}"))?;
    let until = Instant::now() + LIMIT;
    let mut pushes = 0;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if Instant::now() >= until {
            end(&mut child, world);
            return Err(format!("does not end within {} s", LIMIT.as_secs()));
        }
        match world.filter(|world| world.pushes()) {
            Some(world) => {
                pushes += u64::from(world.push(child.id(), "1"));
                pushes += u64::from(world.push(child.id(), "0"));
            }
            None => thread::sleep(LOOK),
        }
    };
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    let text = |path: &Path| {
        fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    };
    let code = code.expect("it has ended");
    Ok((Ran { code, output: text(&output), errors: text(&errors) }, pushes))
}

/// Ends a program that hangs, with its group and, if it has an instance to itself, with that
/// instance and thus with all that it has started.
fn end(child: &mut Child, world: Option<&World>) {
    let instances =
        world.filter(|world| world.has_own()).map(|world| world.instances_of(child.id()));
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for instance in instances.into_iter().flatten() {
        let _ = Pid::from_raw(instance.cast_signed()).map(|one| kill_process(one, Signal::KILL));
    }
    let _ = child.wait();
}
