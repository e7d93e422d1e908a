//! The error of touching a program.

use std::io;

/// Why the code of a process cannot be changed. The process continues as if nothing had been asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such process.
    #[error("there is no process {id}")]
    NoSuch {
        /// Process id.
        id: u32,
    },
    /// The process has ended, and its parent has not waited for it yet.
    #[error("process {id} has ended")]
    Ended {
        /// Process id.
        id: u32,
    },
    /// The id is that of a thread.
    #[error("{id} is a thread of process {process}; name the process")]
    Thread {
        /// Thread id.
        id: u32,
        /// Process id of the thread.
        process: u32,
    },
    /// The process is the caller.
    #[error("process {id} is refit itself, which cannot stop itself; name another process")]
    Own {
        /// Process id.
        id: u32,
    },
    /// The process is a kernel thread.
    #[error("process {id} is a kernel thread, which runs no program")]
    Kernel {
        /// Process id.
        id: u32,
    },
    /// The process belongs to another user, or the system denies access to it.
    #[error(
        "process {id} may not be changed by you: {source}; it is another user's, or made itself \
             unreadable, or ptrace is restricted (kernel.yama.ptrace_scope); root may"
    )]
    NotYours {
        /// Process id.
        id: u32,
        /// Error of the system.
        source: io::Error,
    },
    /// The process is traced already.
    #[error(
        "process {id} is traced by process {by}, and can have only one tracer; end that one first"
    )]
    Traced {
        /// Process id.
        id: u32,
        /// Process id of the tracer.
        by: u32,
    },
    /// The pages of the program move between hosts.
    #[error(
        "process {id} has run at several hosts, between which its pages move: its code can no longer be changed"
    )]
    Hosts {
        /// Process id.
        id: u32,
    },
    /// The program is not for x86-64.
    #[error("the program of process {id} is not 64-bit x86-64 code")]
    Machine {
        /// Process id.
        id: u32,
    },
    /// All threads are under seccomp, so a call that is made in the process could kill it.
    #[error(
        "process {id} limits its own system calls (seccomp): a call that refit makes in it could end it"
    )]
    Filtered {
        /// Process id.
        id: u32,
    },
    /// A thread does not stop.
    #[error(
        "thread {thread} ({name}) of process {id} does not stop: {doing}; its other threads continue; try again later"
    )]
    Restless {
        /// Process id.
        id: u32,
        /// Thread id.
        thread: u32,
        /// Name of the thread (`comm`).
        name: String,
        /// The call or state that it is in.
        doing: String,
    },
    /// The process has run another program (`execve`) meanwhile.
    #[error("process {id} has started another program; try again")]
    Replaced {
        /// Process id.
        id: u32,
    },
    /// The process has no place for the code of a system call.
    #[error(
        "process {id} has no page of code with {} unused bytes at its end, which refit needs for the calls that it makes there",
        refit_sys::slack::SIZE
    )]
    NoSyscall {
        /// Process id.
        id: u32,
    },
    /// A system call that was made in the process failed.
    #[error("the system refused {call} in process {id}: {source}")]
    Call {
        /// Process id.
        id: u32,
        /// Name of the call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// Another operation on the process failed.
    #[error("process {id}: could not {what}: {source}")]
    System {
        /// Process id.
        id: u32,
        /// The operation.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Refusal {
    /// Returns the refusal for a thread that does not stop, with the call or state that it is in.
    pub(crate) fn restless(id: u32, thread: u32) -> Self {
        let name = refit_sys::process::name(thread);
        let state = refit_sys::process::life(thread).map_or(b'X', |life| life.state);
        let doing = match (state, refit_sys::process::waits(thread)) {
            (b'R', _) => "it has waited for a processor all the time".to_owned(),
            (_, Some(waits)) => match waits.call {
                Some(libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3) => {
                    "it waits for the child of its vfork".to_owned()
                }
                Some(call) => {
                    format!("it waits in system call {call}, where nothing interrupts it")
                }
                None => "it waits for a page of its memory".to_owned(),
            },
            (state, None) => format!("its state is {}", char::from(state)),
        };
        Self::Restless { id, thread, name, doing }
    }

    /// Returns the refusal for an error of opening a file in `/proc/PID`.
    pub(crate) fn of_opening(id: u32, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::NoSuch { id },
            Some(libc::EACCES | libc::EPERM) => Self::NotYours { id, source },
            _ => Self::System { id, what: "read it", source },
        }
    }

    /// Returns the refusal for an error of `ptrace`.
    pub(crate) fn of_tracing(id: u32, what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::NoSuch { id },
            Some(libc::EPERM) => Self::NotYours { id, source },
            _ => Self::System { id, what, source },
        }
    }
}
