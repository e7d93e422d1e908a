//! Why a program is not touched.

use std::io;

/// Why the code of a process cannot be changed. The process goes on as if nothing had been asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No process has this number.
    #[error("there is no process {id}")]
    NoSuch {
        /// The number.
        id: u32,
    },
    /// It has ended; its parent has not asked for its status yet.
    #[error("process {id} has ended")]
    Ended {
        /// Its number.
        id: u32,
    },
    /// The number is that of a thread.
    #[error("{id} is a thread of process {process}; name the process")]
    Thread {
        /// The thread.
        id: u32,
        /// Its process.
        process: u32,
    },
    /// It is the one that asks.
    #[error("process {id} is refit itself, which cannot hold itself still; name another one")]
    Own {
        /// Its number.
        id: u32,
    },
    /// It belongs to the kernel.
    #[error("process {id} is a thread of the kernel and runs no program")]
    Kernel {
        /// Its number.
        id: u32,
    },
    /// It belongs to somebody else, or the system keeps it from us.
    #[error(
        "process {id} may not be changed by you: {source}; it is another user's, or made itself \
             unreadable, or ptrace is restricted (kernel.yama.ptrace_scope); root may"
    )]
    NotYours {
        /// Its number.
        id: u32,
        /// What the system said.
        source: io::Error,
    },
    /// A debugger or tracer is attached to it.
    #[error(
        "process {id} is traced by process {by}; only one can be at a time: end that one first"
    )]
    Traced {
        /// Its number.
        id: u32,
        /// Who traces it.
        by: u32,
    },
    /// Its code is not x86-64.
    #[error("the program of process {id} is not 64-bit x86-64 code")]
    Machine {
        /// Its number.
        id: u32,
    },
    /// All its threads run under seccomp, and a call made in it could kill it.
    #[error(
        "process {id} limits its own system calls (seccomp): a call that refit makes in it could end it"
    )]
    Filtered {
        /// Its number.
        id: u32,
    },
    /// A thread does not stop.
    #[error(
        "thread {thread} ({name}) of process {id} does not stop: {doing}; the others were let go on; ask again later"
    )]
    Restless {
        /// Its process.
        id: u32,
        /// The thread.
        thread: u32,
        /// What the kernel calls it.
        name: String,
        /// The call or state that the thread is in.
        doing: String,
    },
    /// It has started another program meanwhile.
    #[error("process {id} has started another program; ask again")]
    Replaced {
        /// Its number.
        id: u32,
    },
    /// There is no place in it for the code by which a system call could be made.
    #[error(
        "process {id} has no page of code with {} unused bytes at its end, which refit needs for the calls that it makes there",
        refit_sys::slack::SIZE
    )]
    NoSyscall {
        /// Its number.
        id: u32,
    },
    /// A system call made in it was refused.
    #[error("the system refused {call} in process {id}: {source}")]
    Call {
        /// Its number.
        id: u32,
        /// The name of the call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Something else of the system failed.
    #[error("process {id}: could not {what}: {source}")]
    System {
        /// Its number.
        id: u32,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Refusal {
    /// That a thread does not stop, and what it does instead.
    pub(crate) fn restless(id: u32, thread: u32) -> Self {
        let name = refit_sys::process::name(thread);
        let state = refit_sys::process::life(thread).map_or(b'X', |life| life.state);
        let doing = match (state, refit_sys::process::waits(thread)) {
            (b'R', _) => "it has been waiting for a processor all the time".to_owned(),
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

    /// What it means that something of `/proc/ID` could not be opened.
    pub(crate) fn of_opening(id: u32, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::NoSuch { id },
            Some(libc::EACCES | libc::EPERM) => Self::NotYours { id, source },
            _ => Self::System { id, what: "look into it", source },
        }
    }

    /// What it means that `ptrace` failed.
    pub(crate) fn of_tracing(id: u32, what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::NoSuch { id },
            Some(libc::EPERM) => Self::NotYours { id, source },
            _ => Self::System { id, what, source },
        }
    }
}
