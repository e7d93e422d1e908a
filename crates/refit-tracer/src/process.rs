//! Reports of the kernel on processes.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use refit_sys::pidfd::Pidfd;
use refit_sys::process;

/// A process of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process's number.
    pub id: u32,
    /// The parent's number.
    pub parent: u32,
    /// The state as `ps` shows it: `R`, `S`, `D`, `T`, `t`, `Z`.
    pub state: char,
    /// The number of threads.
    pub threads: u64,
    /// The processor time used so far.
    pub cpu: Duration,
    /// The resident memory, in bytes.
    pub resident: u64,
    /// The arguments that it was started with, separated by spaces; its name in brackets where it
    /// has none.
    pub command: String,
    /// Whether it holds nothing of the kernel that runs it.
    pub movable: bool,
    /// The number of seccomp filters that refit has given to it.
    pub filters: u32,
}

/// Returns what the kernel reports of a process, or `None` if it has ended meanwhile.
pub fn look(id: u32, movable: bool, filters: u32) -> Option<Process> {
    let usage = process::usage(id)?;
    let words = process::arguments(id);
    let command = if words.is_empty() {
        format!("[{}]", process::name(id))
    } else {
        words.join(OsStr::new(" ")).to_string_lossy().into_owned()
    };
    Some(Process {
        id,
        parent: usage.parent,
        state: char::from(usage.state),
        threads: usage.threads,
        cpu: usage.cpu,
        resident: usage.resident,
        command,
        movable,
        filters,
    })
}

/// Returns the parent of a task that is a process, or `None` if the task is a thread, or has ended
/// meanwhile.
pub fn parent_of(task: u32) -> Option<u32> {
    let (process, parent) = process::process_and_parent(task)?;
    (process == task).then_some(parent)
}

/// Kills a process. The caller must know that the number is still that of the process, for instance
/// because it traces it.
///
/// # Errors
/// Those of kill(2), except that the process has ended already.
pub fn kill(process: u32) -> io::Result<()> {
    let Some(process) = rustix::process::Pid::from_raw(process.cast_signed()) else {
        return Ok(());
    };
    match rustix::process::kill_process(process, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the process that a task belongs to, or `None` if the task has ended meanwhile.
pub fn process_of(task: u32) -> Option<u32> {
    // Reading the text of `/proc/TASK/status` takes thirty times as long.
    if let Ok(process) = Pidfd::open_thread(task).and_then(|one| one.process()) {
        return Some(process);
    }
    process::process_and_parent(task).map(|(process, _)| process)
}
