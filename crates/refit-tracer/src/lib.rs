//! Follows every task of a program, and of all that it starts, from its first instruction to its last.
//!
//! ```text
//! refit run ── tends ──► refit tend (an instance) ── ptrace ──► Supervisor ──► refit ps
//!     └─ becomes the program ◄─── followed, with all that it starts
//! ```
//!
//! The program has the process that `refit run` was: its parent, descriptors, terminal, process group and signals are what
//! they would be without refit, and so is its exit code. The instance is nobody's child here, and in a session of its own.
//!
//! One thread, the event loop, traces all tasks ([`Supervisor::follow`]). Other threads leave requests for it: work with one
//! stopped tracee ([`Supervisor::order`]), or work while all threads of a process are stopped ([`Supervisor::still`]).
//!
//! | module | what it holds |
//! |---|---|
//! | [`resume`] | why a tracee is stopped, and how it goes on |
//! | [`request`] | what threads ask refit for |
//! | [`hook`] | what a crate above decides about threads that run elsewhere |
//! | [`syscall`] | the call that a tracee is in |
//! | [`process`] | what the kernel knows of a process |
//! | [`signals`] | what the kernel reports of a thread's signals |
//! | [`placement`] | where in a program's memory refit puts its own |
//! | [`vdso`] | hiding the vDSO from programs that move |
//! | [`supervisor`] | the event loop, its requests, stopping all, filters and signals |
//!
//! Does: deliver events and stops as if nobody traced. Does not: limit memory (`refit-limits`), move threads
//! (`refit-migrate`), nor start programs.

#![forbid(unsafe_code)]

pub mod hook;
pub mod placement;
pub mod process;
pub mod request;
pub mod resume;
pub mod signals;
pub mod supervisor;
pub mod syscall;
pub mod vdso;

pub use hook::TracerHook;
pub use process::Process;
pub use request::ThreadMoveRequest;
pub use resume::{Resume, StopReason};
pub use supervisor::processors::Shown;
pub use supervisor::{Hears, LIMITS_ITSELF, Supervisor, TRACE_OPTIONS, TRACE_OPTIONS_WITH_EXIT};
