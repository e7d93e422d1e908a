//! A thread of a group, as its coordinator sees it: where it is, and where it is wanted.
//!
//! ```text
//!             depart            arrived              returned
//!   Home ──────────► Departing ─────────► Away ─────────────► Returning
//!    ▲ ▲                 │ stay                                  │ restored
//!    │ └─────────────────┘◄──────────────────────────────────────┤
//!    │ call_returned                                             │ (for one call)
//!    └──────────────────────────── Visiting ◄────────────────────┘
//! ```
//!
//! A thread leaves only from a stop at its origin, and returns only by a message of its present
//! residency: so it never runs at two nodes, nor at none. Each transition is a method here, which
//! asserts the state that it begins from and records a `tracing` event.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use refit_messages::InstanceId;
use tracing::debug;

use crate::error::{MoveError, MoveRefusal};
use crate::origin::coordinator::own_request::OwnRequest;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// At its origin, where it runs.
    Home,
    /// At its origin, for one system call: it leaves again when the call has returned.
    Visiting,
    /// At its origin, about to leave: its calls will be left in this slot.
    Departing { slot: u32 },
    /// At another node.
    Away {
        /// The node.
        at: InstanceId,
        slot: u32,
        /// Whether it was asked to return.
        recalled: bool,
    },
    /// At its origin, and about to get its registers back.
    Returning { slot: u32 },
}

/// Signals that follow each other within this time have a thread stay at its origin for a while.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(10);
/// The longest time for which signals have a thread stay.
const LONGEST_SIGNAL_STAY: Duration = Duration::from_secs(1);

/// A thread of the group.
pub(super) struct Thread {
    id: u32,
    state: State,
    /// Where it is wanted.
    pub(super) wanted: InstanceId,
    /// The number of its residencies at other nodes.
    pub(super) residency: u64,
    /// The nodes that have prepared for it.
    pub(super) ready_at: BTreeSet<InstanceId>,
    /// The time before which it does not leave again.
    pub(super) not_before: Option<Instant>,
    /// The time at which it last returned for a signal, and how long it stayed then.
    last_signal: Option<(Instant, Duration)>,
    /// The time since which it could not leave.
    pub(super) delayed_since: Option<Instant>,
    /// Its own request to run elsewhere.
    pub(super) own_request: OwnRequest,
    /// The callers that wait for it to be where it is wanted.
    pub(super) waiting: Vec<Sender<Result<(), MoveError>>>,
}

impl Thread {
    /// Returns a thread that runs at its origin, and is wanted there.
    pub(super) fn new(id: u32, origin: InstanceId) -> Self {
        Self {
            id,
            state: State::Home,
            wanted: origin,
            residency: 0,
            ready_at: BTreeSet::new(),
            not_before: None,
            last_signal: None,
            delayed_since: None,
            own_request: OwnRequest::Nothing,
            waiting: Vec::new(),
        }
    }

    /// Returns the other node at which it is, if it is at one.
    pub(super) fn away_at(&self) -> Option<InstanceId> {
        match self.state {
            State::Away { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Returns the node at which it is.
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

    /// Begins a departure. Returns the number of the residency that begins.
    pub(super) fn depart(&mut self, slot: u32) -> u64 {
        debug_assert_eq!(self.state, State::Home);
        self.not_before = None;
        self.residency += 1;
        self.enter(State::Departing { slot });
        self.residency
    }

    /// Notes that it has returned for a signal at this time. If signals come often, it stays for a
    /// while, and longer each time: a signal that comes before it has run elsewhere interrupts the
    /// handler of the one before, so of two timers only one would ever be handled.
    pub(super) fn signalled(&mut self, now: Instant) {
        let stay = match self.last_signal {
            Some((then, stay)) if now.duration_since(then) < stay + SIGNAL_INTERVAL => {
                (2 * stay).clamp(SIGNAL_INTERVAL, LONGEST_SIGNAL_STAY)
            }
            _ => Duration::ZERO,
        };
        self.last_signal = Some((now, stay));
        if !stay.is_zero() {
            self.not_before = Some(now + stay);
        }
    }

    /// Ends a departure that has failed. Returns the thread's slot.
    pub(super) fn stay(&mut self) -> Option<u32> {
        debug_assert!(matches!(self.state, State::Departing { .. }), "{:?}", self.state);
        let slot = self.slot();
        self.enter(State::Home);
        slot
    }

    /// Ends a departure: the thread runs at `at`. Notifies the callers that wait for it.
    pub(super) fn arrived(&mut self, at: InstanceId) {
        let State::Departing { slot } = self.state else { unreachable!("{:?}", self.state) };
        self.delayed_since = None;
        self.enter(State::Away { at, slot, recalled: false });
        self.own_request.arrived(at);
        self.notify_waiting();
    }

    /// Notes that the thread is asked to return. Returns the node where it is, or `None` if it was
    /// asked already, or is here.
    pub(super) fn recall(&mut self) -> Option<InstanceId> {
        let State::Away { at, slot, recalled: false } = self.state else { return None };
        self.enter(State::Away { at, slot, recalled: true });
        Some(at)
    }

    /// Notes that the thread has left the node where it was.
    pub(super) fn returned(&mut self) {
        let State::Away { slot, .. } = self.state else { unreachable!("{:?}", self.state) };
        self.enter(State::Returning { slot });
    }

    /// Ends a return: the thread has its registers back, and is here for one call (`visits`) or
    /// not. Returns its slot.
    pub(super) fn restored(&mut self, visits: bool) -> Option<u32> {
        debug_assert!(matches!(self.state, State::Returning { .. }), "{:?}", self.state);
        let slot = self.slot();
        self.enter(if visits { State::Visiting } else { State::Home });
        slot
    }

    /// Notes that the thread may leave only after the call that it is in.
    pub(super) fn visit(&mut self) {
        debug_assert_eq!(self.state, State::Home);
        self.enter(State::Visiting);
    }

    /// Notes that the call has returned for which the thread came.
    pub(super) fn call_returned(&mut self) {
        if self.state == State::Visiting {
            self.enter(State::Home);
        }
    }

    /// Notifies the callers that wait for the thread to be where it is wanted.
    pub(super) fn notify_waiting(&mut self) {
        self.waiting.drain(..).for_each(|one| drop(one.send(Ok(()))));
    }

    /// Changes where the thread is wanted. Notifies the callers that wanted it elsewhere.
    pub(super) fn want(&mut self, to: InstanceId) {
        if self.wanted != to {
            let why = MoveError::from(MoveRefusal::WantedElsewhere(to.0));
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
        assert_eq!(thread.restored(true), Some(3));
        assert_eq!((thread.slot(), thread.is_visiting()), (None, true));
        thread.call_returned();
        assert_eq!(thread.depart(4), 2);
        assert_eq!((thread.stay(), thread.at(ORIGIN)), (Some(4), ORIGIN));
    }

    #[test]
    fn signals_that_come_often_have_their_thread_stay_longer_each_time() {
        let mut thread = Thread::new(7, ORIGIN);
        let (began, millis) = (Instant::now(), Duration::from_millis);
        let mut stay = |after| {
            thread.not_before = None;
            thread.signalled(began + millis(after));
            thread.not_before.map(|then| then - (began + millis(after)))
        };
        assert_eq!((stay(0), stay(10)), (None, None), "rare");
        assert_eq!((stay(19), stay(38)), (Some(millis(10)), Some(millis(20))));
        let longest = (0..20).map(|turn| stay(40 + turn)).last();
        assert_eq!(longest, Some(Some(LONGEST_SIGNAL_STAY)));
        assert_eq!(stay(2000), None, "rare again");
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
    fn callers_that_wanted_it_elsewhere_are_notified() {
        let mut thread = away();
        let (sender, results) = std::sync::mpsc::channel();
        thread.waiting.push(sender);
        thread.want(OTHER);
        assert!(results.recv().expect("a result").is_err());
        assert!(results.recv().is_err(), "nobody waits any more");
    }
}
