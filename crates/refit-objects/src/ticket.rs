//! Queueing for the right to change an object, and waiting for what mostly takes a microsecond.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::retire::collect;

/// How long who sleeps goes without looking at its deadline.
const LOOK_AROUND: Duration = Duration::from_millis(1);

/// How to wait for something that mostly comes within a microsecond: spin, then sleep in short naps. A call that is
/// still in flight then is that of a thread which does not run, and it may need this very processor; so naps rather
/// than `sched_yield`, which an urgent thread would give to nobody.
#[derive(Default)]
pub(crate) struct Patience {
    tries: u32,
}

impl Patience {
    const SPINS: u32 = 200;
    const NAP: Duration = Duration::from_micros(5);
    const NAP_AT_MOST: Duration = Duration::from_micros(50);

    pub(crate) fn lose(&mut self) {
        self.tries += 1;
        match self.tries.checked_sub(Self::SPINS) {
            None | Some(0) => std::hint::spin_loop(),
            // Nobody tells when a request ends: that would cost every request. So it is polled.
            Some(naps) => std::thread::sleep((Self::NAP * naps).min(Self::NAP_AT_MOST)),
        }
    }
}

/// The right to change something; those who want it queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Mutex<TicketState>,
    given_back: Condvar,
}

#[derive(Debug)]
struct TicketState {
    taken: bool,
    /// Who waits. Mostly nobody, and then giving it back costs no system call.
    waiting: u32,
}

/// Gives the right back when it is dropped.
pub(crate) struct Taken<'a>(&'a Ticket);

impl Ticket {
    pub(crate) const fn new() -> Self {
        let state = TicketState { taken: false, waiting: 0 };
        Ticket { state: Mutex::new(state), given_back: Condvar::new() }
    }

    /// Waits for the right, for `patience` at most, or until `given_up` says so.
    pub(crate) fn take(
        &self,
        patience: Duration,
        given_up: &dyn Fn() -> bool,
    ) -> Option<Taken<'_>> {
        let until = Instant::now().checked_add(patience);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.taken {
            if given_up() || until.is_some_and(|u| Instant::now() >= u) {
                return None;
            }
            state.waiting += 1;
            let waited = self.given_back.wait_timeout(state, LOOK_AROUND);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        state.taken = true;
        Some(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let wanted = {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.taken = false;
            state.waiting > 0
        };
        if wanted {
            self.0.given_back.notify_one();
        }
        collect();
    }
}
