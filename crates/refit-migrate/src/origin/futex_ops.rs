//! Futex operations that pass words from thread to thread. The kernel does not wait for the pages
//! of these words: if one is at another node, such a call does nothing and fails (`EFAULT`). Refit
//! fetches the pages then, and has the call restarted.

use refit_sys::trace::Tracee;

/// The message of the filter for such a call ([`PASSES`]).
pub(crate) const WORDS: u16 = 0x7764;

/// The operations that pass words on, without their flags.
pub(crate) const PASSES: [i32; 7] = [
    libc::FUTEX_WAKE_OP,
    libc::FUTEX_LOCK_PI,
    libc::FUTEX_UNLOCK_PI,
    libc::FUTEX_TRYLOCK_PI,
    libc::FUTEX_WAIT_REQUEUE_PI,
    libc::FUTEX_CMP_REQUEUE_PI,
    // `FUTEX_LOCK_PI2` (Linux 5.14).
    13,
];

/// The number of times that such a call is restarted: another node may take the pages again before
/// it is made.
pub(crate) const TRIES: u32 = 100;

/// A call of a thread that passes words on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FutexOp {
    /// The number of times that it has missed pages.
    tries: u32,
    /// Whether its thread stands behind it, and waits for the decision whether it is restarted.
    waits: bool,
}

impl FutexOp {
    /// Handles a stop of its thread for a system call. Returns whether the thread is at the end of
    /// the call, pages may have been missed, and the call must be restarted if they were; if not,
    /// the call is over.
    pub(crate) fn misses_pages(&mut self, tracee: &Tracee) -> bool {
        let missing = tracee.has_returned()
            && tracee.registers().is_ok_and(|registers| {
                let failed = registers.rax.cast_signed() == -i64::from(libc::EFAULT);
                failed && registers.orig_rax.cast_signed() == libc::SYS_futex
            });
        let again = missing && self.tries < TRIES;
        if again {
            self.tries += 1;
            self.waits = true;
        }
        again
    }

    /// Returns whether the thread waits for the decision about the call.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits
    }

    /// Notes that the decision is being made.
    pub(crate) fn decide(&mut self) {
        self.waits = false;
    }
}
