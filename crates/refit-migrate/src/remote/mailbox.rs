//! What an executor is asked to do, in order, and how it hears of that wherever it waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use refit_messages::Reply;
use refit_sys::adaptive_spin;
use refit_sys::shadow_stub::Slot;

use crate::protocol::messages::Arrive;

/// What is asked of it.
pub(crate) enum Order {
    /// A thread is about to arrive.
    Expect,
    Arrive(Box<Arrive>, Reply<Arrive>),
    Recall(u64),
    /// The call of this stay has returned this.
    SyscallResult(u64, u64),
    /// Its thread is no more; another may come.
    Rest,
    End,
}

/// All that is left to be done.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Order>,
    /// The task runs, or is about to: who has an order for it has to stop it.
    runs: bool,
    /// Where it may wait for a call to return.
    slot: Option<Slot>,
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more; whether its task runs, which has to be stopped for that to be seen.
    pub(crate) fn hand(&self, order: Order) -> bool {
        let mut state = self.state();
        state.orders.push_back(order);
        let (slot, runs) = (state.slot, state.runs);
        drop(state);
        // It waits for orders, or for a call, or runs: each has its own wakeup word.
        self.called.notify_all();
        if let Some(slot) = slot.filter(|_| !runs) {
            slot.ring();
        }
        runs
    }

    /// The task is about to run; not, if there are orders.
    pub(crate) fn begins_to_run(&self) -> bool {
        let mut state = self.state();
        state.runs = state.orders.is_empty();
        state.runs
    }

    /// It stands.
    pub(crate) fn stands(&self) {
        self.state().runs = false;
    }

    /// The next order; waits for one.
    pub(crate) fn wait(&self) -> Order {
        let none = |state: &mut State| state.orders.is_empty();
        let waited = self.called.wait_while(self.state(), none);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.orders.pop_front().unwrap_or(Order::End)
    }

    /// Waits until there is an order, without taking it; looks out for it for a moment first.
    pub(crate) fn await_one(&self, moment: Duration) {
        let there = |state: &State| !state.orders.is_empty();
        if !adaptive_spin::for_up_to(moment, || there(&self.state())) {
            drop(self.called.wait_while(self.state(), |state| !there(state)));
        }
    }

    /// The next order, if there is one.
    pub(crate) fn look(&self) -> Option<Order> {
        self.state().orders.pop_front()
    }

    /// Its thread is told there what its calls return; `None`: here.
    pub(crate) fn waits_at(&self, slot: Option<Slot>) {
        self.state().slot = slot;
    }
}
