//! Questions to others that are under way, and what comes of them.
//!
//! Nobody waits for ever: each who is asked answers, and when an instance is lost all questions are given up, as is each that is begun after
//! the replica's end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use refit_sys::adaptive_spin;

use crate::lookup::cache::AnswerSource;
use crate::protocol::messages::Mapping;

/// Those of one replica.
#[derive(Debug, Default)]
pub(crate) struct PendingQueries {
    book: Mutex<Book>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct Book {
    open: BTreeMap<u64, Open>,
    ended: bool,
}

/// A question.
#[derive(Debug, Default)]
struct Open {
    /// How many may still answer; none is needed any more once there is an answer.
    awaited: usize,
    answer: Option<Answer>,
}

/// What somebody has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) mapping: Mapping,
    pub(crate) by: AnswerSource,
    /// Messages that it took, with this one.
    pub(crate) messages: u32,
}

impl PendingQueries {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one that so many will answer; its number, which no other has, of whatever replica.
    pub(crate) fn begin(&self, awaited: usize) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: it only has to be another one.
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let mut book = self.book();
        let awaited = if book.ended { 0 } else { awaited };
        book.open.insert(number, Open { awaited, answer: None });
        number
    }

    /// One has answered, or cannot; `None`: it knows nothing.
    pub(crate) fn answered(&self, number: u64, found: Option<Answer>) {
        let mut book = self.book();
        // Of one that has an answer already nobody waits for the others.
        let Some(open) = book.open.get_mut(&number) else { return };
        open.awaited = open.awaited.saturating_sub(1);
        open.answer = open.answer.take().or(found);
        drop(book);
        self.change.notify_all();
    }

    /// Waits for the first answer; `None`: there is none.
    pub(crate) fn wait(&self, number: u64) -> Option<Answer> {
        let waits = |book: &Book| {
            book.open.get(&number).is_some_and(|one| one.awaited > 0 && one.answer.is_none())
        };
        adaptive_spin::a_moment(|| !waits(&self.book()));
        let waited = self.change.wait_while(self.book(), |book| waits(book));
        let mut book = waited.unwrap_or_else(PoisonError::into_inner);
        book.open.remove(&number)?.answer
    }

    /// Somebody is lost, who may have been asked.
    pub(crate) fn give_up(&self) {
        self.book().open.values_mut().for_each(|open| open.awaited = 0);
        self.change.notify_all();
    }

    /// Nobody asks any more.
    pub(crate) fn end(&self) {
        self.book().ended = true;
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(messages: u32) -> Answer {
        Answer { mapping: Mapping::Nothing, by: AnswerSource::Origin, messages }
    }

    #[test]
    fn the_first_answer_counts_and_nobody_waits_for_ever() {
        let seeks = PendingQueries::default();
        let one = seeks.begin(3);
        seeks.answered(one, None);
        seeks.answered(one, Some(found(1)));
        seeks.answered(one, Some(found(2)));
        assert_eq!(seeks.wait(one), Some(found(1)));
        seeks.answered(one, Some(found(3)));
        assert!(seeks.book().open.is_empty());

        let nobody = seeks.begin(1);
        seeks.answered(nobody, None);
        assert_eq!(seeks.wait(nobody), None);
        let lost = seeks.begin(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| seeks.wait(lost));
            seeks.give_up();
            assert_eq!(waits.join().expect("no panic"), None);
        });
        seeks.end();
        let late = seeks.begin(1);
        assert_eq!(seeks.wait(late), None);
    }
}
