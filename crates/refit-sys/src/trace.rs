//! Stopping threads of other processes, by `ptrace` without its surprises.
//!
//! A thread is attached to with `PTRACE_SEIZE` and stopped with `PTRACE_INTERRUPT`: no signal is
//! sent to it, and its parent learns nothing. When it is detached, or its tracer dies, it continues
//! where it was. Every call here has to come from the thread that seized ([`Tracee`] is not
//! `Send`).
//!
//! A stopped thread is always in an event stop, never before the delivery of a signal: a signal
//! that arrives in the meantime is delivered first ([`Tracee::settle`]), so detaching cannot lose
//! one.

pub mod batch;
pub(crate) mod call;
mod event;
mod options;
mod returning;
mod sequences;
mod state;
mod tracee;
mod words;

pub use call::{CallError, NoSyscall, UnreportedTask, find_syscall};
pub use event::{Event, next, next_of, next_unless};
pub use options::Options;
pub use returning::{
    BYTES as RETURNING_BYTES, OPTIONS as RETURNING, Remaining, gone_on, remaining,
};
pub use sequences::{ANNOUNCED as RSEQ_ANNOUNCED, DESCRIPTOR as RSEQ_DESCRIPTOR};
pub use state::{Information, SystemCall};
pub use tracee::{Stop, Tracee};
pub use words::{RegisterWords, from_words, to_words};

pub use libc::user_regs_struct as Registers;
