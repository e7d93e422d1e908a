//! Follows every task of a program, and of all that it starts, from its first instruction to its
//! last.
//!
//! ```text
//! refit run ── starts ──► refit tend (an instance) ── ptrace ──► Supervisor ──► refit ps
//!     └─ becomes the program ◄─── followed, with all that it starts
//! ```
//!
//! The program is the process that `refit run` was. Its parent, descriptors, terminal, process
//! group and signals are what they would be without refit, and so is its exit code. The instance is
//! no child of the user's shell, and has a session of its own.
//!
//! One thread, the event loop, traces all tasks ([`Supervisor::follow`]). Other threads leave
//! requests for it: work with one stopped tracee ([`Supervisor::order`]), or work while all threads
//! of a process are stopped ([`Supervisor::while_stopped`]).
//!
//! # Modules
//!
//! | module | contents |
//! ---|---|
//! | [`resume`] | why a tracee is stopped, and how it goes on |
//! | [`request`] | what threads ask refit for |
//! | [`loan`] | what another process asks for that borrows a stopped program |
//! | [`hook`] | decisions of a crate above about threads that run elsewhere |
//! | [`syscall`] | the call that a tracee is in |
//! | [`process`] | what the kernel reports of a process |
//! | [`signals`] | what the kernel reports of a thread's signals |
//! | [`placement`] | where in a program's memory refit puts its own |
//! | [`vdso`] | hides the vDSO from movable programs |
//! | [`supervisor`] | the event loop, its requests, stopping all threads, filters and signals |
//!
//! # What it does not do
//!
//! It delivers events and stops as if the program were not traced. It does not limit memory
//! (`refit-limits`), move threads (`refit-migrate`), or start programs.

#![forbid(unsafe_code)]

pub mod hook;
pub mod loan;
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
pub use supervisor::Shown;
pub use supervisor::{
    NotMovable, ResultTiming, Supervisor, TRACE_OPTIONS, TRACE_OPTIONS_WITH_EXIT,
};
