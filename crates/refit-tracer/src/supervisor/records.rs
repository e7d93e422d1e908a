//! The records of a task's entry, which other modules here make and act on: its call that is
//! restarted ([`restarted_calls`](crate::supervisor::restarted_calls)) or was cut short
//! ([`short_writes`](crate::supervisor::short_writes)), its request to move, the word that its end
//! clears, and strict mode.

use std::time::Instant;

use refit_sys::restart::{Call, LimitedCall};
use refit_sys::trace::Registers;

/// A call that is restarted until its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart {
    /// The deadline.
    pub(super) deadline: Instant,
    pub(super) limited: LimitedCall,
    /// The call's number, and the address behind it.
    pub(super) call: (u64, u64),
    /// The arguments that the program has given, while others replace them.
    pub(super) own: Option<[u64; 6]>,
    /// The address of the replaced limit in the program's memory.
    pub(super) place: Option<u64>,
}

/// The state of a call that was cut short.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// The thread stands behind the call, which has this number.
    Short(u64),
    /// The thread makes a call at the address `at` for the rest of its own, of which `done` bytes
    /// are done.
    UnderWay { own: Call, at: u64, done: u64 },
}

/// The state of a thread's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveRequest {
    /// The thread is being taken back before its call, which has this address.
    SteppingBack { at: u64 },
    /// The thread stood before its call, and the request with this number was passed on.
    PassedOn { number: u64 },
}

/// A word of a program that the kernel clears when a thread ends (`CLONE_CHILD_CLEARTID`).
#[derive(Clone, Copy, Debug)]
pub(super) struct ClearWord {
    pub(super) address: u64,
    /// The thread's process, looked up when it is first asked for.
    pub(super) process: Option<u32>,
}

/// Whether a task is in the replacement of strict mode
/// ([`sandbox`](crate::supervisor::sandbox)).
#[derive(Debug)]
pub(super) enum StrictMode {
    Outside,
    /// About to enter it, with these registers behind the call, except the call's result.
    Entering(Box<Registers>),
    Inside,
}
