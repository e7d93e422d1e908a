//! A thread of a group, as its coordinator sees it: where it is, and where it is wanted.
//!
//! ```text
//!             depart            arrived              returned
//!   Home ──────────► Departing ─────────► Away ─────────────► Returning
//!    ▲ ▲                 │ stay                                  │ is_home
//!    │ └─────────────────┘◄──────────────────────────────────────┤
//!    │ call_returned                                             │ visits
//!    └──────────────────────────── Visiting ◄────────────────────┘
//! ```
//!
//! A thread leaves only from a stop at its origin, and returns only by a message of its present residency: so it never runs twice,
//! nor not at all. Each transition is a method here, which asserts the state that it begins from and records a `tracing` event.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::time::Instant;

use refit_messages::InstanceId;
use tracing::debug;

use crate::error::MoveError;
use crate::origin::coordinator::move_request::OwnRequest;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// At its origin, where it runs.
    Home,
    /// At its origin, for one system call: it leaves again when that has returned.
    Visiting,
    /// At its origin, on its way: its calls will be left in this slot.
    Departing { slot: u32 },
    /// At another node.
    Away {
        /// Which.
        at: InstanceId,
        slot: u32,
        /// Whether it was asked to return.
        recalled: bool,
    },
    /// At its origin, and about to be given its registers there.
    Returning { slot: u32 },
}

/// A thread of the group.
pub(super) struct Thread {
    id: u32,
    state: State,
    /// Where it is wanted.
    pub(super) wanted: InstanceId,
    /// Counts its residencies at other nodes.
    pub(super) residency: u64,
    /// The nodes at which all is ready for it.
    pub(super) ready_at: BTreeSet<InstanceId>,
    /// The time before which it does not leave again.
    pub(super) not_before: Option<Instant>,
    /// Since when it could not leave.
    pub(super) delayed_since: Option<Instant>,
    /// What it has asked for itself.
    pub(super) own_request: OwnRequest,
    /// The callers that wait for it to be where it is wanted.
    pub(super) waiting: Vec<Sender<Result<(), MoveError>>>,
}

impl Thread {
    /// One that runs at its origin, and is wanted there.
    pub(super) fn new(id: u32, origin: InstanceId) -> Self {
        Self {
            id,
            state: State::Home,
            wanted: origin,
            residency: 0,
            ready_at: BTreeSet::new(),
            not_before: None,
            delayed_since: None,
            own_request: OwnRequest::Nothing,
            waiting: Vec::new(),
        }
    }

    /// Returns at which other node it is, if it is at one.
    pub(super) fn away_at(&self) -> Option<InstanceId> {
        match self.state {
            State::Away { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Returns at which node it is.
    pub(super) fn at(&self, origin: InstanceId) -> InstanceId {
        self.away_at().unwrap_or(origin)
    }

    /// Returns whether it is here for one system call.
    pub(super) fn is_visiting(&self) -> bool {
        self.state == State::Visiting
    }

    /// Returns whether it was asked to return, and has not yet.
    pub(super) fn is_recalled(&self) -> bool {
        matches!(self.state, State::Away { recalled: true, .. })
    }

    /// Returns the slot in which its calls are left.
    pub(super) fn slot(&self) -> Option<u32> {
        match self.state {
            State::Home | State::Visiting => None,
            State::Departing { slot } | State::Away { slot, .. } | State::Returning { slot } => {
                Some(slot)
            }
        }
    }

    fn enter(&mut self, state: State) {
        debug!(thread = self.id, residency = self.residency, from = ?self.state, to = ?state, "thread");
        self.state = state;
    }

    /// It begins to leave; returns the number of the residency that begins.
    pub(super) fn depart(&mut self, slot: u32) -> u64 {
        debug_assert_eq!(self.state, State::Home);
        self.not_before = None;
        self.residency += 1;
        self.enter(State::Departing { slot });
        self.residency
    }

    /// It stays, after all; returns its slot.
    pub(super) fn stay(&mut self) -> Option<u32> {
        debug_assert!(matches!(self.state, State::Departing { .. }), "{:?}", self.state);
        let slot = self.slot();
        self.enter(State::Home);
        slot
    }

    /// It runs at `at` now: the callers that wanted it there are told.
    pub(super) fn arrived(&mut self, at: InstanceId) {
        let State::Departing { slot } = self.state else { unreachable!("{:?}", self.state) };
        self.delayed_since = None;
        self.enter(State::Away { at, slot, recalled: false });
        self.own_request.is_at(at);
        self.is_there();
    }

    /// It is to be asked to return. Returns from where, unless it was asked already, or is here.
    pub(super) fn recall(&mut self) -> Option<InstanceId> {
        let State::Away { at, slot, recalled: false } = self.state else { return None };
        self.enter(State::Away { at, slot, recalled: true });
        Some(at)
    }

    /// It has left the node where it was.
    pub(super) fn returned(&mut self) {
        let State::Away { slot, .. } = self.state else { unreachable!("{:?}", self.state) };
        self.enter(State::Returning { slot });
    }

    /// It has its registers again, and is here for one call (`visits`) or not; returns its slot.
    pub(super) fn is_home(&mut self, visits: bool) -> Option<u32> {
        debug_assert!(matches!(self.state, State::Returning { .. }), "{:?}", self.state);
        let slot = self.slot();
        self.enter(if visits { State::Visiting } else { State::Home });
        slot
    }

    /// It leaves not before it has ended the call that it is in.
    pub(super) fn visits(&mut self) {
        debug_assert_eq!(self.state, State::Home);
        self.enter(State::Visiting);
    }

    /// The call that it came for has returned.
    pub(super) fn call_returned(&mut self) {
        if self.state == State::Visiting {
            self.enter(State::Home);
        }
    }

    /// It is where it is wanted: the callers that wait for that are told.
    pub(super) fn is_there(&mut self) {
        self.waiting.drain(..).for_each(|one| drop(one.send(Ok(()))));
    }

    /// It is wanted at `to`: callers that wanted it elsewhere are told.
    pub(super) fn want(&mut self, to: InstanceId) {
        if self.wanted != to {
            let why = MoveError::Refused(format!("it is wanted at instance {} since", to.0));
            self.waiting.drain(..).for_each(|one| drop(one.send(Err(why.clone()))));
        }
        self.wanted = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: InstanceId = InstanceId(0);
    const OTHER: InstanceId = InstanceId(1);

    fn away() -> Thread {
        let mut thread = Thread::new(7, ORIGIN);
        assert_eq!(thread.depart(3), 1);
        thread.arrived(OTHER);
        thread
    }

    #[test]
    fn a_thread_is_recalled_once_a_residency() {
        let mut thread = away();
        assert_eq!((thread.recall(), thread.recall()), (Some(OTHER), None));
        assert!(thread.is_recalled());
        thread.returned();
        assert_eq!((thread.recall(), thread.slot()), (None, Some(3)));
        assert_eq!(thread.is_home(true), Some(3));
        assert_eq!((thread.slot(), thread.is_visiting()), (None, true));
        thread.call_returned();
        assert_eq!(thread.depart(4), 2);
        assert_eq!((thread.stay(), thread.at(ORIGIN)), (Some(4), ORIGIN));
    }

    #[test]
    #[should_panic(expected = "Away")]
    fn a_thread_that_is_away_does_not_depart() {
        away().depart(5);
    }

    #[test]
    #[should_panic(expected = "Home")]
    fn a_thread_that_is_here_does_not_return() {
        Thread::new(7, ORIGIN).returned();
    }

    #[test]
    fn who_wanted_it_elsewhere_is_told() {
        let mut thread = away();
        let (tell, told) = std::sync::mpsc::channel();
        thread.waiting.push(tell);
        thread.want(OTHER);
        assert!(told.recv().expect("told").is_err());
        assert!(told.recv().is_err(), "nobody waits any more");
    }
}
