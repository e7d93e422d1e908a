//! Queueing for the right to change an object, and waiting for events that usually take a
//! microsecond.

use std::time::{Duration, Instant};

use crate::retire::collect;
use parking_lot::{Condvar, Mutex};

/// The time for which a waiter sleeps before it checks its deadline.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// A wait for an event that usually comes within a microsecond: spin, then sleep in short naps. A
/// call that is still in progress then belongs to a thread that is not running, and that may need
/// this very processor. The waiter therefore naps instead of calling `sched_yield`: an urgent
/// thread would not yield to ordinary ones.
#[derive(Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    const SPINS: u32 = 200;
    const NAP: Duration = Duration::from_micros(5);
    const NAP_AT_MOST: Duration = Duration::from_micros(50);

    pub(crate) fn wait(&mut self) {
        self.tries += 1;
        match self.tries.checked_sub(Self::SPINS) {
            None | Some(0) => std::hint::spin_loop(),
            // No thread reports the end of a request, since that would cost every request. So it is
            // polled.
            Some(naps) => std::thread::sleep((Self::NAP * naps).min(Self::NAP_AT_MOST)),
        }
    }
}

/// The right to change something, for which threads queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// Held for one change of the state.
    state: Mutex<TicketState>,
    given_back: Condvar,
}

#[derive(Debug)]
struct TicketState {
    taken: bool,
    /// The number of waiting threads. Usually zero, and then releasing the right makes no system
    /// call.
    waiting: u32,
}

/// A guard that holds the right until it is dropped.
pub(crate) struct TicketGuard<'a>(&'a Ticket);

impl Ticket {
    pub(crate) const fn new() -> Self {
        let state = TicketState { taken: false, waiting: 0 };
        Ticket { state: Mutex::new(state), given_back: Condvar::new() }
    }

    /// Waits for the right, but no longer than `timeout`, or until `given_up` returns true.
    pub(crate) fn take(
        &self,
        timeout: Duration,
        given_up: &dyn Fn() -> bool,
    ) -> Option<TicketGuard<'_>> {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.state.lock();
        while state.taken {
            if given_up() || until.is_some_and(|u| Instant::now() >= u) {
                return None;
            }
            state.waiting += 1;
            self.given_back.wait_for(&mut state, DEADLINE_CHECK_INTERVAL);
            state.waiting -= 1;
        }
        state.taken = true;
        Some(TicketGuard(self))
    }
}

impl Drop for TicketGuard<'_> {
    fn drop(&mut self) {
        let wanted = {
            let mut state = self.0.state.lock();
            state.taken = false;
            state.waiting > 0
        };
        if wanted {
            self.0.given_back.notify_one();
        }
        collect();
    }
}
