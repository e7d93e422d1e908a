//! Queues commands for an executor, in order, and wakes the executor wherever it waits.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use refit_messages::Reply;
use refit_sys::adaptive_spin;
use refit_sys::shadow_stub::Slot;

use crate::protocol::messages::Arrive;

/// A command for an executor.
pub(crate) enum ExecutorCommand {
    /// A thread is about to arrive.
    Expect,
    Arrive(Box<Arrive>, Reply<Arrive>),
    /// Send the thread back, if it is still in this residency.
    Recall(u64),
    /// The call of this residency has returned this.
    SyscallResult(u64, u64),
    /// The thread has ended; another one may come.
    Rest,
    End,
}

/// The commands that an executor has not handled yet.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    commands: VecDeque<ExecutorCommand>,
    /// Whether the task runs, or is about to: a sender of a command then has to stop it.
    runs: bool,
    /// The slot in which the executor may wait for a call's result.
    slot: Option<Slot>,
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a command. Returns whether the task runs, and has to be stopped for the executor to see
    /// the command.
    pub(crate) fn send(&self, command: ExecutorCommand) -> bool {
        let mut state = self.state();
        state.commands.push_back(command);
        let (slot, runs) = (state.slot, state.runs);
        drop(state);
        // The executor waits for commands, or for a call, or its task runs: each has its own
        // wakeup.
        self.changed.notify_all();
        if let Some(slot) = slot.filter(|_| !runs) {
            slot.ring();
        }
        runs
    }

    /// Notes that the task is about to run. Returns whether it may: not while there are commands.
    pub(crate) fn try_run(&self) -> bool {
        let mut state = self.state();
        state.runs = state.commands.is_empty();
        state.runs
    }

    /// Notes that the task is stopped.
    pub(crate) fn set_stopped(&self) {
        self.state().runs = false;
    }

    /// Waits for the next command.
    pub(crate) fn wait(&self) -> ExecutorCommand {
        let none = |state: &mut State| state.commands.is_empty();
        let mut state = self.state();
        self.changed.wait_while(&mut state, none);
        state.commands.pop_front().unwrap_or(ExecutorCommand::End)
    }

    /// Waits until there is a command, without taking it; spins for `moment` first.
    pub(crate) fn wait_until_filled(&self, moment: Duration) {
        let filled = |state: &State| !state.commands.is_empty();
        if !adaptive_spin::for_up_to(moment, || filled(&self.state())) {
            self.changed.wait_while(&mut self.state(), |state| !filled(state));
        }
    }

    /// Takes the next command, if there is one.
    pub(crate) fn take(&self) -> Option<ExecutorCommand> {
        self.state().commands.pop_front()
    }

    /// Sets the slot in which results of the thread's calls arrive; `None`: they arrive here.
    pub(crate) fn set_slot(&self, slot: Option<Slot>) {
        self.state().slot = slot;
    }
}
