//! The effect of a stop without a signal on a blocking system call of the thread, by the call's
//! number (x86-64).
//!
//! A stop interrupts a call as a signal does, but no handler runs. The kernel then leaves one of
//! four kinds of value in `rax` (`signal(7)`, "Interruption of system calls by stop signals", and
//! the sources of 6.18):
//!
//! - `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`: the kernel makes the call again with the
//!   same arguments;
//! - `ERESTART_RESTARTBLOCK`: the kernel continues the call for what remains of its time;
//! - `EINTR`: nothing was done. The tracer replaces it by `ERESTARTNOHAND` ([`redo`]): the kernel
//!   makes the call again, unless a signal handler runs after all; then the call fails with
//!   `EINTR`. A time limit among the arguments would start over; [`limit`] finds it, so that the
//!   repeated call waits only for the remaining time;
//! - a count: part was done, and without the stop the call would have continued. [`left`] returns
//!   the call that transfers the rest.
//!
//! `splice`, `tee` and `vmsplice` return as soon as nothing more is available, so their counts are
//! final, too. Calls that block only in a file's driver (`ioctl`) are [`Restart::Kernel`]: their
//! result cannot be continued.
//!
//! The kernel writes the remaining time of `ppoll`, `pselect6` and `select` to their argument and
//! repeats them itself; only where it cannot write there do they fail with `EINTR`.

mod left;
mod limit;
mod registers;
mod table;

pub use left::{Behind, Call, HEADER, Left, left};
pub use limit::{LimitedCall, limit};
pub use registers::{
    ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS, RESTARTS, arguments,
    is_redone, redo, set_arguments,
};
pub use table::{All, Limit, Pieces, Rest, Restart, of, rows};
