//! What the moves of a program come to: counted where it happens, read by whoever wants to know.
//!
//! ```text
//!   coordinator ──► Ledger: moves, retrievals, changes, waits in its queue ◄── reader
//!   executor ─────► Tally:  calls, faults                ◄── "counted?" ──────────┘
//! ```
//!
//! Nothing of it is told unasked: what a host counts comes when somebody reads it, and when the program ends. Each count has one writer,
//! and its lock is contended only while somebody reads.

mod tally;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use refit_messages::{InstanceId, Layer, Peer};

use crate::protocol::messages::{Counted, GroupId, Mapping, ReturnReason};

#[cfg(test)]
use tally::CALLS;
pub use tally::{Tally, Times};

/// What becomes of a program's pages where they move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Questions of other instances for pages; until they were answered.
    pub fetches: Times,
    /// How long these waited for that.
    pub waits: Times,
    /// Of those: to write.
    pub to_write: u64,
    /// Pages that were sent with what is on them.
    pub sent: u64,
    /// Pages of zeros, which were only told.
    pub zeros: u64,
    /// Pages that who asked had already, and may write to now.
    pub permitted: u64,
    /// Pages that were given unasked, since they come after one that was asked for.
    pub ahead: u64,
    /// Of those: the page behind them was asked for next, where memory is gone through in order.
    pub ahead_used: u64,
    /// Pages that the program needed at its origin; until it had them.
    pub home: Times,
    /// Pages that had to be had from another instance first.
    pub taken: u64,
    /// How often a holder was left alone for a while with what it wrote to.
    pub turns: u64,
}

/// What the moves of a program come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Threads that have left: from the stop here to where they run.
    pub out: Times,
    /// Threads that were to leave, and could not.
    pub refused: u64,
    /// Of those, and of threads that were away and had to come: there was no memory for them at an instance.
    pub no_memory: u64,
    /// Threads that were wanted back.
    pub recalled: u64,
    /// Threads that came for a system call, and leave again.
    pub for_calls: u64,
    /// Threads that came to fault here.
    pub for_exceptions: u64,
    /// Coming back: from the message to where they run.
    pub back: Times,
    /// Signals for which threads were called back.
    pub signals: u64,
    /// Questions that were answered with frames that others have, too.
    pub shared: u64,
    /// With private memory that became frames for it.
    pub converted: u64,
    /// With a file.
    pub files: u64,
    /// With nothing: the thread comes.
    pub unmapped: u64,
    /// Finding those answers.
    pub answers: Times,
    /// How long the questions waited for it.
    pub questions: Times,
    /// Changes of the memory that threads elsewhere wanted.
    pub changes: u64,
    /// And those of threads here.
    pub changes_here: u64,
    /// Changes that others were told of, until they had forgotten.
    pub forgets: Times,
    /// To how many, in sum.
    pub invalidations_sent: u64,
    /// Whatever the coordinator was asked or told: how long that waited in its queue.
    pub waits: Times,
    /// Its pages, where they move.
    pub pages: PageCounts,
    /// What instances count that are or were hosts of threads, by number.
    pub destinations: BTreeMap<u16, Tally>,
}

impl MoveCounts {
    pub(crate) fn returned(&mut self, why: ReturnReason) {
        match why {
            ReturnReason::Recalled | ReturnReason::Asked => self.recalled += 1,
            ReturnReason::Call => self.for_calls += 1,
            ReturnReason::Exception => self.for_exceptions += 1,
        }
    }

    pub(crate) fn answered(&mut self, mapping: &Mapping, made: bool, began: Instant) {
        self.answers.since(began);
        match mapping {
            Mapping::Frames { .. } if made => self.converted += 1,
            Mapping::Frames { .. } => self.shared += 1,
            Mapping::File { .. } => self.files += 1,
            Mapping::Nothing => self.unmapped += 1,
        }
    }
}

/// What has gone between this instance and another since they are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The other one's number.
    pub peer: u16,
    /// Messages to it.
    pub sent: u64,
    /// Their bytes, with headers.
    pub sent_bytes: u64,
    /// Messages from it.
    pub received: u64,
    /// Their bytes, with headers.
    pub received_bytes: u64,
    /// How long an urgent one of those is under way, on an average of samples, in nanoseconds.
    pub transit_ns: u64,
}

impl From<&Peer> for Traffic {
    fn from(peer: &Peer) -> Self {
        let (one, other) = (peer.urgent, peer.bulk);
        Self {
            peer: peer.id.0,
            sent: one.sent + other.sent,
            sent_bytes: one.sent_bytes + other.sent_bytes,
            received: one.received + other.received,
            received_bytes: one.received_bytes + other.received_bytes,
            transit_ns: u64::try_from(one.mean_transit.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// Where the counts of one program are.
#[derive(Debug)]
pub(crate) struct Ledger {
    group: GroupId,
    counts: Mutex<MoveCounts>,
    /// What hosts have counted in replicas that are no more. Held while they are asked, so that no answer is followed by an earlier one.
    former: Mutex<BTreeMap<u16, Tally>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(crate) fn counts(&self) -> MutexGuard<'_, MoveCounts> {
        lock(&self.counts)
    }

    /// Asks all hosts what they count. One that is lost, or has no replica any more, has said the last.
    pub(crate) fn ask(&self, layer: &Layer) {
        self.ask_hosts(layer, &lock(&self.former));
    }

    /// The same, before all replicas end; there may be others later.
    pub(crate) fn close(&self, layer: &Layer) {
        let mut former = lock(&self.former);
        self.ask_hosts(layer, &former);
        former.clone_from(&self.counts().destinations);
    }

    fn ask_hosts(&self, layer: &Layer, former: &BTreeMap<u16, Tally>) {
        let destinations: Vec<u16> = self.counts().destinations.keys().copied().collect();
        for host in destinations {
            let answer = layer.ask(InstanceId(host), &Counted { group: self.group }, &[]);
            if let Ok((Some(mut tally), _)) = answer {
                former.get(&host).into_iter().for_each(|before| tally.add(before));
                self.counts().destinations.insert(host, tally);
            }
        }
    }
}

/// Ledgers of programs that began here, the latest last: of those that live, and some that have ended.
#[derive(Debug, Default)]
pub(crate) struct Ledgers(Mutex<VecDeque<Arc<Ledger>>>);

/// How many are kept, unless more live.
const KEPT: usize = 64;

impl Ledgers {
    /// A new one; that of an earlier program of the same number is no more.
    pub(crate) fn begin(&self, group: GroupId) -> Arc<Ledger> {
        let (counts, former) = (Mutex::default(), Mutex::default());
        let ledger = Arc::new(Ledger { group, counts, former });
        let mut all = lock(&self.0);
        all.retain(|one| one.group.process != group.process);
        all.push_back(Arc::clone(&ledger));
        let mut spare = all.len().saturating_sub(KEPT);
        all.retain(|one| {
            // Its coordinator has it as long as it lives.
            let goes = spare > 0 && Arc::strong_count(one) == 1;
            spare -= usize::from(goes);
            !goes
        });
        ledger
    }

    /// That of a process, if it has one.
    pub(crate) fn of(&self, process: u32) -> Option<Arc<Ledger>> {
        lock(&self.0).iter().find(|one| one.group.process == process).cloned()
    }

    /// What all of them have counted here.
    pub(crate) fn all(&self) -> Vec<(u32, MoveCounts)> {
        let all = lock(&self.0).clone();
        all.iter().map(|one| (one.group.process, one.counts().clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(process: u32) -> GroupId {
        GroupId { origin: 0, process, program: 0 }
    }

    #[test]
    fn times_add_up() {
        let one = |ns| Times { count: 1, total_ns: ns, least_ns: ns, most_ns: ns };
        let mut all = Times::default();
        for ns in [5, 3, 9] {
            all.add(&one(ns));
        }
        all.add(&Times::default());
        assert_eq!(all, Times { count: 3, total_ns: 17, least_ns: 3, most_ns: 9 });
    }

    #[test]
    fn no_call_has_too_high_a_number() {
        let mut tally = Tally::default();
        for number in [0, CALLS, u64::MAX] {
            tally.called(number, Instant::now());
        }
        assert_eq!(tally.calls.keys().copied().collect::<Vec<_>>(), [0, CALLS as u32]);
        let mut sum = tally.clone();
        sum.add(&tally);
        assert_eq!(sum.calls[&0].count, 2);
    }

    #[test]
    fn those_that_live_are_kept() {
        let ledgers = Ledgers::default();
        let lives = ledgers.begin(group(1));
        lives.counts().refused = 7;
        for process in 2..200 {
            drop(ledgers.begin(group(process)));
        }
        assert_eq!(ledgers.all().len(), KEPT);
        assert_eq!(ledgers.of(1).expect("it lives").counts().refused, 7);
        assert!(ledgers.of(2).is_none() && ledgers.of(199).is_some());
        drop(ledgers.begin(group(1)));
        assert_eq!(ledgers.of(1).expect("another").counts().refused, 0);
    }
}
