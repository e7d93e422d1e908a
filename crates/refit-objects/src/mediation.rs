//! The phases of a swap as calls see them: forward, block, completed (Hui 2000, §4.3, §4.4.1).
//!
//! # Idea
//!
//! While an object is being swapped, every call to it passes `enter` and, if it was admitted to the
//! old implementation, `leave`. There is one [`Ledger`] per processor, with its own lock, so that
//! callers on different processors do not contend; a call may leave on another processor than it
//! entered, so it remembers its ledger.
//!
//! | phase | a new call | a call of a thread that is inside already |
//! |---|---|---|
//! | forward | old implementation, tracked | old implementation, tracked |
//! | block | waits for the outcome, then goes to the serving root | old implementation, tracked |
//! | completed | goes to the serving root, not tracked | the same |
//!
//! # Why this holds
//!
//! *No call is in the old implementation during the transfer.* The swapper turns to block only
//! after a generation has passed since the mediator was installed, so every untracked call has
//! ended. It turns each ledger to block under the ledger's lock; from then on only threads that are
//! inside already are admitted there, and such a thread has an entry in some ledger until it leaves
//! its outermost call. `drained` scans the ledgers one after the other. It does not miss a thread
//! that adds an entry to a ledger already scanned, because a re-entrant call adds its entry *while
//! its outer call still has one*. Let ledger i be the one with the outermost entry. If the scan
//! found ledger i empty, the outermost call had left; all inner calls of that thread had left
//! before, and no new one is admitted. If the scan did not find it empty, `drained` returned false.
//! All ledgers exist from the beginning, so none is missing in a scan. With [`crate::RequestToken`]
//! an outer call of one thread covers the calls of another; the argument is the same, since the
//! outer call does not leave before the threads to which it has passed its token have returned.
//!
//! *A re-entrant call is never blocked*: it is admitted in every phase but the last, and the last
//! begins when no call is inside.
//!
//! *Every blocked call continues*: blocked callers wait for `outcome` under its own lock;
//! `complete` stores it and wakes all. The swapper polls `drained`: calls are short, and leaving
//! should not cost a wake-up.
//!
//! # Locks, in the order in which they are taken
//!
//! | lock | protects |
//! |---|---|
//! | `outcome` | where blocked calls go, and the count of them |
//! | a [`Ledger`]'s | the phase and the tracked calls of one processor; one at a time |

use crate::generation::Caller;
use crate::sync::{Condvar, Mutex, lock, wait};
use refit_change::ChangeId;
use refit_change::watch::{Step, current, tell};
#[cfg(not(loom))]
use refit_sys::clock;
#[cfg(not(loom))]
use std::time::{Duration, Instant};

/// The phase of a ledger, and of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Forward,
    Block,
    Completed,
}

/// The root to which calls go when the switch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// To the new implementation, which has taken over.
    New,
    /// To the old implementation, which continues.
    Old,
}

/// The decision of [`Mediation::enter`] about a call.
#[cfg(any(test, loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The call goes to the old implementation, and calls `leave` with this ticket when it returns.
    Tracked(u64),
    /// The call goes to the root that serves after the outcome, and does not call `leave`.
    Pass(Outcome),
}

/// A tracked call that is inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked {
    ticket: u64,
    pub(crate) caller: Caller,
    /// The time of its entry, as `refit_sys::clock` counts.
    since: u64,
}

#[cfg(not(loom))]
impl Tracked {
    /// Returns the time that it has been inside.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_nanos(clock::nanos(clock::ticks().wrapping_sub(self.since)))
    }
}

/// The calls that have entered on one processor.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: Mutex<LedgerState>,
}

#[derive(Debug)]
struct LedgerState {
    phase: Phase,
    /// Usually there is one at a time, which needs no list.
    first: Option<Tracked>,
    others: Vec<Tracked>,
    next_ticket: u64,
    forwarded: u64,
}

/// The effects of a switch on its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) forwarded: u64,
    pub(crate) blocked: u64,
    pub(crate) longest_block_ns: u64,
}

#[cfg(not(loom))]
impl Tally {
    /// Adds the tally of another switch.
    pub(crate) fn add(&mut self, other: Tally) {
        self.forwarded += other.forwarded;
        self.blocked += other.blocked;
        self.longest_block_ns = self.longest_block_ns.max(other.longest_block_ns);
    }
}

/// The switch of one object, as its calls see it.
#[derive(Debug)]
pub(crate) struct Mediation {
    /// The change for which calls wait; 0 if unknown.
    change: ChangeId,
    ledgers: Box<[Ledger]>,
    outcome: Mutex<Gate>,
    opened: Condvar,
}

#[derive(Debug)]
struct Gate {
    outcome: Option<Outcome>,
    blocked: u64,
    /// The time at which the first call began to wait.
    #[cfg(not(loom))]
    since: Option<Instant>,
    /// The time for which that call had waited when the switch ended. No call waits longer, apart
    /// from the time until its thread runs again.
    longest_block_ns: u64,
}

impl Mediation {
    /// Creates a mediation in the forward phase, with a ledger for every processor.
    pub(crate) fn new(processors: usize) -> Self {
        let ledger = || Ledger {
            state: Mutex::new(LedgerState {
                phase: Phase::Forward,
                first: None,
                others: Vec::new(),
                next_ticket: 0,
                forwarded: 0,
            }),
        };
        Mediation {
            change: current(),
            ledgers: (0..processors).map(|_| ledger()).collect(),
            outcome: Mutex::new(Gate {
                outcome: None,
                blocked: 0,
                #[cfg(not(loom))]
                since: None,
                longest_block_ns: 0,
            }),
            opened: Condvar::new(),
        }
    }

    /// Admits a call on `processor`, which waits if it must. `inside`: the calling thread is in a
    /// tracked call of this switch already.
    #[cfg(any(test, loom))]
    pub(crate) fn enter(&self, processor: usize, inside: bool, caller: Caller) -> Admission {
        match self.admit(processor, inside, caller) {
            Some(ticket) => Admission::Tracked(ticket),
            None => Admission::Pass(self.wait_for_outcome()),
        }
    }

    /// As `enter`, but without the waiting: returns the ticket of a tracked call, or `None` for one
    /// that goes to the root that serves after the outcome.
    #[inline]
    pub(crate) fn admit(&self, processor: usize, inside: bool, caller: Caller) -> Option<u64> {
        let mut ledger = lock(&self.ledgers[processor].state);
        match ledger.phase {
            Phase::Forward => Some(ledger.track(caller)),
            Phase::Block if inside => Some(ledger.track(caller)),
            Phase::Block | Phase::Completed => None,
        }
    }

    /// Records the return of a tracked call.
    #[inline]
    pub(crate) fn leave(&self, processor: usize, ticket: u64) {
        let mut ledger = lock(&self.ledgers[processor].state);
        if ledger.first.as_ref().is_some_and(|first| first.ticket == ticket) {
            ledger.first = None;
        } else {
            ledger.others.retain(|other| other.ticket != ticket);
        }
    }

    /// Makes new calls wait from now on.
    pub(crate) fn block(&self) {
        for ledger in &self.ledgers {
            lock(&ledger.state).phase = Phase::Block;
        }
    }

    /// Returns whether any call has arrived. If so, others may arrive, and wait.
    pub(crate) fn in_use(&self) -> bool {
        self.ledgers.iter().any(|l| lock(&l.state).forwarded > 0)
    }

    /// Returns whether no tracked call is inside. Meaningful after [`Self::block`].
    pub(crate) fn drained(&self) -> bool {
        self.ledgers.iter().all(|l| lock(&l.state).tracked().next().is_none())
    }

    /// Ends the switch: blocked calls continue, and later ones are no longer tracked.
    pub(crate) fn complete(&self, outcome: Outcome) {
        // The outcome first, so that a call that sees `Completed` need not wait for it.
        lock(&self.outcome).open(outcome);
        for ledger in &self.ledgers {
            lock(&ledger.state).phase = Phase::Completed;
        }
        self.opened.notify_all();
    }

    /// Returns the calls that are inside now.
    pub(crate) fn tracked(&self) -> Vec<Tracked> {
        self.ledgers
            .iter()
            .flat_map(|l| lock(&l.state).tracked().copied().collect::<Vec<_>>())
            .collect()
    }

    /// Returns the effects on calls so far.
    pub(crate) fn tally(&self) -> Tally {
        let gate = lock(&self.outcome);
        Tally {
            forwarded: self.ledgers.iter().map(|l| lock(&l.state).forwarded).sum(),
            blocked: gate.blocked,
            longest_block_ns: gate.longest_block_ns,
        }
    }

    /// Waits until the switch has ended. Returns its outcome.
    #[cold]
    pub(crate) fn wait_for_outcome(&self) -> Outcome {
        let mut gate = lock(&self.outcome);
        if let Some(outcome) = gate.outcome {
            return outcome;
        }
        gate.blocked += 1;
        #[cfg(not(loom))]
        gate.since.get_or_insert_with(Instant::now);
        let _waiting = Waiting::begin(self.change);
        loop {
            gate = wait(&self.opened, gate);
            if let Some(outcome) = gate.outcome {
                return outcome;
            }
        }
    }
}

/// Reports that a call waits, and when dropped, that it no longer does.
struct Waiting(ChangeId);

impl Waiting {
    fn begin(change: ChangeId) -> Self {
        tell(Step::Waits(change));
        Waiting(change)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        tell(Step::GoesOn(self.0));
    }
}

impl Gate {
    fn open(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
        #[cfg(not(loom))]
        if let Some(since) = self.since {
            let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.longest_block_ns = waited;
        }
    }
}

/// Returns the time, in the unit of [`Tracked::age`].
#[inline]
fn now() -> u64 {
    #[cfg(not(loom))]
    return clock::ticks();
    #[cfg(loom)]
    0
}

impl LedgerState {
    fn tracked(&self) -> impl Iterator<Item = &Tracked> {
        self.first.iter().chain(&self.others)
    }

    #[inline]
    fn track(&mut self, caller: Caller) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.forwarded += 1;
        let tracked = Tracked { ticket, caller, since: now() };
        match &mut self.first {
            first @ None => *first = Some(tracked),
            Some(_) => self.others.push(tracked),
        }
        ticket
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn forward_tracks_block_admits_only_those_inside_completed_passes() {
        let mediation = Mediation::new(2);
        let Admission::Tracked(outer) = mediation.enter(0, false, Caller::default()) else {
            panic!("forward admits")
        };
        mediation.block();
        assert!(!mediation.drained());
        // The same thread again, from another processor.
        let Admission::Tracked(inner) = mediation.enter(1, true, Caller::default()) else {
            panic!("a thread that is inside is never blocked")
        };
        mediation.leave(1, inner);
        assert!(!mediation.drained());
        mediation.leave(0, outer);
        assert!(mediation.drained());
        mediation.complete(Outcome::Old);
        assert_eq!(mediation.enter(0, false, Caller::default()), Admission::Pass(Outcome::Old));
        assert_eq!(mediation.tally(), Tally { forwarded: 2, ..Tally::default() });
    }

    /// Calls that are inside on one processor at the same time leave in any order, and each removes
    /// only itself from the list.
    #[test]
    fn a_call_that_leaves_leaves_all_others_inside() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mediation = Mediation::new(1);
            let tickets = [0, 1, 2].map(|tid| {
                let caller = Caller { tid, ..Caller::default() };
                mediation.admit(0, false, caller).expect("forward admits")
            });
            mediation.block();
            let mut inside = vec![0, 1, 2];
            for tid in order {
                assert!(!mediation.drained(), "{order:?}: {inside:?} are inside");
                mediation.leave(0, tickets[tid as usize]);
                inside.retain(|other| *other != tid);
                let mut tracked: Vec<_> =
                    mediation.tracked().iter().map(|t| t.caller.tid).collect();
                tracked.sort_unstable();
                assert_eq!(tracked, inside, "{order:?}");
            }
            assert!(mediation.drained());
        }
    }

    #[test]
    fn a_blocked_call_goes_on_when_the_switch_ends() {
        let mediation = std::sync::Arc::new(Mediation::new(1));
        mediation.block();
        let caller = {
            let mediation = std::sync::Arc::clone(&mediation);
            std::thread::spawn(move || mediation.enter(0, false, Caller::default()))
        };
        while mediation.tally().blocked == 0 {
            std::thread::yield_now();
        }
        assert!(mediation.drained(), "a call that waits is not inside");
        mediation.complete(Outcome::New);
        assert_eq!(caller.join().expect("no panic"), Admission::Pass(Outcome::New));
    }
}

#[cfg(all(test, loom))]
#[path = "mediation_model.rs"]
mod model;
