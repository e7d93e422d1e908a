//! The conversation of a loan: another process acts on a program that a supervisor traces.
//!
//! A task has one tracer, so `refit probe` cannot trace a program that an instance follows. The
//! supervisor stops the program for it, and acts on the stopped tasks as the borrower asks
//! ([`Supervisor::lend`](crate::Supervisor::lend)), until the borrower is done or has died. The
//! borrower reads and writes the program's memory itself, for which it need not be the tracer.
//!
//! ```text
//!   borrower                       event loop
//!      │ ── (begins) ─────────────────► stops all tasks
//!      │ ◄──────────────── Stopped ──── (serves nobody else from now on)
//!      │ ── Registers, Call, … ───────► acts on the task
//!      │ ◄──────────────── answer ─────
//!      │ ── (ends, or dies) ──────────► lets all tasks go on
//! ```

use refit_sys::trace::RegisterWords;
use serde::{Deserialize, Serialize};

/// A request of a borrower. Each task is one of those that are [stopped](LentTask::is_stopped).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoanRequest {
    /// Return the general registers of a task.
    Registers(u32),
    /// Set the general registers of a task.
    SetRegisters(u32, RegisterWords),
    /// Return the vector registers of a task, and the rest of its extended state, as words.
    Vectors(u32),
    /// Return a task's area for restartable sequences, as
    /// [`Tracee::rseq`](refit_sys::trace::Tracee::rseq) does.
    Rseq(u32),
    /// Return whether signals of a task are pending.
    HasSignals(u32),
    /// Have a task make a system call by code at this address, as
    /// [`Tracee::call_returning`](refit_sys::trace::Tracee::call_returning) does.
    Call {
        /// The task, which [makes calls](LentTask::makes_calls).
        task: u32,
        /// The address for the code.
        at: u64,
        /// The number of the system call.
        number: i64,
        /// Its arguments.
        arguments: [u64; 6],
    },
}

/// The answer of a supervisor: the first one unasked, then one to each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoanAnswer {
    /// The program has been stopped.
    Stopped {
        /// The time since the first task was asked to stop, in nanoseconds.
        since_ns: u64,
        /// All tasks that run in the program's memory.
        tasks: Vec<LentTask>,
        /// The number of seccomp filters that refit has given to the program, which permit all
        /// calls that a borrower makes.
        filters: u32,
    },
    /// The general registers of a task.
    Registers(RegisterWords),
    /// The registers are set.
    Set,
    /// The extended state of a task, in the layout of `XSAVE`.
    Vectors(Vec<u64>),
    /// The address of the area and its signature; `None` if the task has registered none.
    Rseq(Option<(u64, u32)>),
    /// Whether signals are pending.
    HasSignals(bool),
    /// The result of the system call.
    Returned(u64),
    /// The system call failed with this error number.
    CallFailed(i32),
    /// The request failed with this error number. `ESRCH`: the task was killed. As the first
    /// answer: the program was not stopped.
    Failed(i32),
}

/// A task of a program that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentTask {
    /// Its number.
    pub task: u32,
    /// Whether it is a thread of the program, not of another process that shares its memory.
    pub is_own: bool,
    /// Whether it is stopped. Otherwise it waits in the kernel, for the child of its `vfork`, and
    /// stops before it runs the program's code again.
    pub is_stopped: bool,
    /// Whether it can make calls for the borrower.
    pub makes_calls: bool,
}
