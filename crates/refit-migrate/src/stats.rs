//! Counts of a program's moves: kept where they happen, and gathered when a user reads them.
//!
//! ```text
//!   coordinator ──► Ledger: moves, lookups, changes, waits in its queue ◄── reader
//!   executor ─────► Tally:  calls, faults          ◄── `Counted` ──────────┘
//! ```
//!
//! No count is sent unless requested: a destination's counts come when a user reads them, and when
//! the program ends. Each count has one writer, and its lock is contended only while a user reads.

#[macro_use]
mod counters;
mod tally;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use refit_messages::{InstanceId, Layer, Peer};

use crate::protocol::messages::{Counted, GroupId, Mapping, ReturnReason};

#[cfg(test)]
use tally::CALLS;
pub use tally::{Tally, Times};

macro_rules! declare_page_counts {
    ($($(#[$doc:meta])* $name:ident: $kind:ident $(, $alias:meta)?;)*) => {
        /// Counts of a program's pages where they move.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PageCounts {
            $($(#[$doc])* pub $name: $kind,)*
        }
    };
}

page_counters!(declare_page_counts, Times);

macro_rules! declare_move_counts {
    ($($(#[$doc:meta])* $name:ident: $kind:ident $(, $alias:meta)?;)*) => {
        /// Counts of the moves of a program.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct MoveCounts {
            $($(#[$doc])* pub $name: $kind,)*
            /// Its pages, where they move.
            pub pages: PageCounts,
            /// The counts of nodes that have or had a replica, by number.
            pub destinations: BTreeMap<u16, Tally>,
        }
    };
}

move_counters!(declare_move_counts, Times);

impl MoveCounts {
    pub(crate) fn count_return(&mut self, why: ReturnReason) {
        match why {
            ReturnReason::Recalled | ReturnReason::Asked => self.recalled += 1,
            ReturnReason::Call => self.for_calls += 1,
            ReturnReason::Exception => self.for_exceptions += 1,
        }
    }

    pub(crate) fn count_answer(&mut self, mapping: &Mapping, made: bool, began: Instant) {
        self.answers.since(began);
        match mapping {
            Mapping::Frames { .. } if made => self.converted += 1,
            Mapping::Frames { .. } => self.shared += 1,
            Mapping::File { .. } => self.files += 1,
            Mapping::Nothing => self.unmapped += 1,
        }
    }
}

/// The messages between this node and a peer since they are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The peer's number.
    pub peer: u16,
    /// The number of messages to it.
    pub sent: u64,
    /// Their bytes, with headers.
    pub sent_bytes: u64,
    /// The number of messages from it.
    pub received: u64,
    /// Their bytes, with headers.
    pub received_bytes: u64,
    /// The mean transit time of urgent ones of those, by samples, in nanoseconds.
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

/// The counts of one program.
///
/// # Locks
/// `former`, then `counts`. No message is awaited with `counts` held.
#[derive(Debug)]
pub(crate) struct Ledger {
    group: GroupId,
    counts: Mutex<MoveCounts>,
    /// The counts of replicas that have ended, by node. Held while nodes are asked, so that no
    /// answer is overwritten by an earlier one.
    former: Mutex<BTreeMap<u16, Tally>>,
}

impl Ledger {
    pub(crate) fn counts(&self) -> MutexGuard<'_, MoveCounts> {
        self.counts.lock()
    }

    /// Gathers the counts of all destinations. A node that is lost, or has no replica any more, has
    /// sent its last ones.
    pub(crate) fn gather(&self, layer: &Layer) {
        self.gather_from_destinations(layer, &self.former.lock());
    }

    /// Gathers them before all replicas end; there may be others later.
    pub(crate) fn close(&self, layer: &Layer) {
        let mut former = self.former.lock();
        self.gather_from_destinations(layer, &former);
        former.clone_from(&self.counts().destinations);
    }

    fn gather_from_destinations(&self, layer: &Layer, former: &BTreeMap<u16, Tally>) {
        let destinations: Vec<u16> = self.counts().destinations.keys().copied().collect();
        for node in destinations {
            let answer = layer.ask(InstanceId(node), &Counted { group: self.group }, &[]);
            if let Ok((Some(mut tally), _)) = answer {
                former.get(&node).into_iter().for_each(|before| tally.add(before));
                self.counts().destinations.insert(node, tally);
            }
        }
    }
}

/// The ledgers of programs that began here, the latest last: of those that live, and of some that
/// have ended.
#[derive(Debug, Default)]
pub(crate) struct Ledgers(Mutex<VecDeque<Arc<Ledger>>>);

/// The number of ledgers that are kept, unless more programs live.
const MAX_KEPT: usize = 64;

impl Ledgers {
    /// Adds a ledger; drops that of an earlier program of the same process number.
    pub(crate) fn begin(&self, group: GroupId) -> Arc<Ledger> {
        let (counts, former) = (Mutex::default(), Mutex::default());
        let ledger = Arc::new(Ledger { group, counts, former });
        let mut all = self.0.lock();
        all.retain(|one| one.group.process != group.process);
        all.push_back(Arc::clone(&ledger));
        let mut spare = all.len().saturating_sub(MAX_KEPT);
        all.retain(|one| {
            // The coordinator of a live program has a reference.
            let goes = spare > 0 && Arc::strong_count(one) == 1;
            spare -= usize::from(goes);
            !goes
        });
        ledger
    }

    /// Returns the ledger of a process, if it has one.
    pub(crate) fn of(&self, process: u32) -> Option<Arc<Ledger>> {
        self.0.lock().iter().find(|one| one.group.process == process).cloned()
    }

    /// Returns the counts of all programs, as far as they are kept here.
    pub(crate) fn all(&self) -> Vec<(u32, MoveCounts)> {
        let all = self.0.lock().clone();
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
            tally.count_call(number, Instant::now());
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
        assert_eq!(ledgers.all().len(), MAX_KEPT);
        assert_eq!(ledgers.of(1).expect("it lives").counts().refused, 7);
        assert!(ledgers.of(2).is_none() && ledgers.of(199).is_some());
        drop(ledgers.begin(group(1)));
        assert_eq!(ledgers.of(1).expect("another").counts().refused, 0);
    }
}
