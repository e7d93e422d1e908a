//! Futex operations that pass words from thread to thread. The kernel does not wait for the pages
//! of these words: if one is at another node, such a call does nothing and fails (`EFAULT`). Refit
//! fetches the pages then, and has the call restarted.

use std::collections::BTreeMap;

use refit_sys::trace::Tracee;

/// The message of the filter for such a call ([`PASSES`]).
pub(crate) const WORDS: u16 = 0x7764;

/// These operations, without their flags.
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

/// How often such a call is restarted: another node may take the pages again before it is made.
pub(crate) const TRIES: u32 = 100;

/// Threads in such calls.
#[derive(Default)]
pub(crate) struct FutexOps {
    of: BTreeMap<u32, Call>,
}

#[derive(Default)]
struct Call {
    /// How often it has missed pages.
    tries: u32,
    /// Whether its thread stands behind it, and waits for the decision whether it is restarted.
    waits: bool,
}

impl FutexOps {
    /// Notes that a thread is about to make such a call, perhaps again.
    pub(crate) fn note_entry(&mut self, task: u32) {
        self.of.entry(task).or_default();
    }

    /// Returns whether a thread is at the end of such a call that may have missed pages, and must
    /// be restarted if it has.
    pub(crate) fn misses_pages(&mut self, tracee: &Tracee) -> bool {
        let Some(call) = self.of.get_mut(&tracee.thread()) else { return false };
        let missing = tracee.has_returned()
            && tracee.registers().is_ok_and(|registers| {
                let failed = registers.rax.cast_signed() == -i64::from(libc::EFAULT);
                failed && registers.orig_rax.cast_signed() == libc::SYS_futex
            });
        if missing && call.tries < TRIES {
            call.tries += 1;
            call.waits = true;
            return true;
        }
        self.forget(tracee.thread());
        false
    }

    /// Returns whether a thread waits for the decision about its call.
    pub(crate) fn is_waiting(&self, task: u32) -> bool {
        self.of.get(&task).is_some_and(|call| call.waits)
    }

    /// Notes that the decision about a thread's call is being made.
    pub(crate) fn decide(&mut self, task: u32) {
        if let Some(call) = self.of.get_mut(&task) {
            call.waits = false;
        }
    }

    /// Forgets a thread that has ended, or is in no such call.
    pub(crate) fn forget(&mut self, task: u32) {
        self.of.remove(&task);
    }
}
