//! Calls that pass words from thread to thread. For pages of these the kernel does not wait: where one is elsewhere, such a call does nothing and
//! fails (`EFAULT`). Whoever can brings the pages, and has the call made again.

use std::collections::BTreeMap;

use refit_sys::trace::Tracee;

/// What a filter says of a call that passes words from thread to thread, for whose pages the kernel does not wait ([`PASSES`]).
pub(crate) const WORDS: u16 = 0x7764;

/// Such operations of `futex`, without their flags.
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

/// How often such a call is made again: somebody else may take the pages again before that.
pub(crate) const TRIES: u32 = 100;

/// Threads in such calls.
#[derive(Default)]
pub(crate) struct FutexOps {
    of: BTreeMap<u32, Call>,
}

#[derive(Default)]
struct Call {
    /// How often it has lacked pages.
    tries: u32,
    /// Its thread stands behind it, and nobody has decided yet whether it is made again.
    waits: bool,
}

impl FutexOps {
    /// A thread stands before one, perhaps again.
    pub(crate) fn begins(&mut self, task: u32) {
        self.of.entry(task).or_default();
    }

    /// Whether a thread stands at the end of one that may have lacked pages, and is to be made again if it has.
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

    /// Whether a thread stands behind one, and is to learn nothing of it yet.
    pub(crate) fn waits(&self, task: u32) -> bool {
        self.of.get(&task).is_some_and(|call| call.waits)
    }

    /// Somebody decides about the call that a thread stands behind.
    pub(crate) fn decide(&mut self, task: u32) {
        if let Some(call) = self.of.get_mut(&task) {
            call.waits = false;
        }
    }

    /// A thread is no more, or in no such call.
    pub(crate) fn forget(&mut self, task: u32) {
        self.of.remove(&task);
    }
}
