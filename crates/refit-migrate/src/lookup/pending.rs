//! Lookups at other nodes whose answers are not there yet.
//!
//! No thread waits forever: each node that is asked answers, and all lookups are given up when a
//! node is lost. A lookup that begins after the replica's end is given up at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};
use refit_sys::adaptive_spin;

use crate::lookup::cache::AnswerSource;
use crate::protocol::messages::Mapping;

/// The pending lookups of one replica.
#[derive(Debug, Default)]
pub(crate) struct PendingQueries {
    lookups: Mutex<Lookups>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct Lookups {
    open: BTreeMap<u64, Pending>,
    ended: bool,
}

/// A pending lookup.
#[derive(Debug, Default)]
struct Pending {
    /// The number of nodes that may still answer. It does not matter any more once there is an
    /// answer.
    awaited: usize,
    answer: Option<Answer>,
}

/// The answer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) mapping: Mapping,
    pub(crate) source: AnswerSource,
    /// The number of messages that it took, this one included.
    pub(crate) messages: u32,
}

impl PendingQueries {
    fn lookups(&self) -> MutexGuard<'_, Lookups> {
        self.lookups.lock()
    }

    /// Begins a lookup that this many nodes will answer. Returns its number, which differs from
    /// those of all lookups of all replicas.
    pub(crate) fn begin(&self, awaited: usize) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to differ from all others.
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let mut lookups = self.lookups();
        let awaited = if lookups.ended { 0 } else { awaited };
        lookups.open.insert(number, Pending { awaited, answer: None });
        number
    }

    /// Notes that a node has answered, or cannot; `None` means that it does not know.
    pub(crate) fn on_answer(&self, number: u64, found: Option<Answer>) {
        let mut lookups = self.lookups();
        // Nobody waits for further answers to a lookup that has one.
        let Some(open) = lookups.open.get_mut(&number) else { return };
        open.awaited = open.awaited.saturating_sub(1);
        open.answer = open.answer.take().or(found);
        drop(lookups);
        self.change.notify_all();
    }

    /// Waits for the first answer. Returns `None` if no node has one.
    pub(crate) fn wait(&self, number: u64) -> Option<Answer> {
        let waits = |lookups: &Lookups| {
            lookups.open.get(&number).is_some_and(|one| one.awaited > 0 && one.answer.is_none())
        };
        adaptive_spin::a_moment(|| !waits(&self.lookups()));
        let mut lookups = self.lookups();
        self.change.wait_while(&mut lookups, |lookups| waits(lookups));
        lookups.open.remove(&number)?.answer
    }

    /// Gives up all lookups, since a node is lost that may have been asked.
    pub(crate) fn give_up(&self) {
        self.lookups().open.values_mut().for_each(|open| open.awaited = 0);
        self.change.notify_all();
    }

    /// Gives up all lookups, and those that begin later.
    pub(crate) fn end(&self) {
        self.lookups().ended = true;
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(messages: u32) -> Answer {
        Answer { mapping: Mapping::Nothing, source: AnswerSource::Origin, messages }
    }

    #[test]
    fn the_first_answer_counts_and_no_lookup_waits_forever() {
        let queries = PendingQueries::default();
        let one = queries.begin(3);
        queries.on_answer(one, None);
        queries.on_answer(one, Some(found(1)));
        queries.on_answer(one, Some(found(2)));
        assert_eq!(queries.wait(one), Some(found(1)));
        queries.on_answer(one, Some(found(3)));
        assert!(queries.lookups().open.is_empty());

        let nobody = queries.begin(1);
        queries.on_answer(nobody, None);
        assert_eq!(queries.wait(nobody), None);
        let lost = queries.begin(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queries.wait(lost));
            queries.give_up();
            assert_eq!(waits.join().expect("no panic"), None);
        });
        queries.end();
        let late = queries.begin(1);
        assert_eq!(queries.wait(late), None);
    }
}
