//! The questions to one peer that wait for their answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

/// The outcome of a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The answer and its body.
    Answer(Vec<u8>, Vec<u8>),
    Unanswered,
    /// The peer was lost, for this reason.
    Lost(String),
}

/// All questions that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    last: u64,
    open: HashMap<u64, Arc<Ticket>>,
    /// The reason that there will be no more answers, once there is one.
    closed: Option<String>,
}

/// One question.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    /// Set after the outcome is stored, so that spinning takes no lock.
    settled: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    change: Condvar,
}

impl Tickets {
    /// Creates a ticket, and returns its number; fails with the reason if the peer is lost.
    pub(crate) fn open(&self) -> Result<(u64, Arc<Ticket>), String> {
        let mut book = self.0.lock();
        if let Some(why) = &book.closed {
            return Err(why.clone());
        }
        book.last += 1;
        let (number, ticket) = (book.last, Arc::<Ticket>::default());
        book.open.insert(number, Arc::clone(&ticket));
        Ok((number, ticket))
    }

    /// Stores an outcome. Returns whether there was such a ticket.
    pub(crate) fn settle(&self, number: u64, outcome: Outcome) -> bool {
        let ticket = self.0.lock().open.remove(&number);
        ticket.map(|ticket| ticket.settle(outcome)).is_some()
    }

    /// Removes a ticket for which no caller waits any more.
    pub(crate) fn forget(&self, number: u64) {
        self.0.lock().open.remove(&number);
    }

    /// Stores the loss for all tickets, including later ones.
    pub(crate) fn close(&self, why: &str) {
        let mut book = self.0.lock();
        book.closed = Some(why.to_owned());
        let open = std::mem::take(&mut book.open);
        drop(book);
        for ticket in open.into_values() {
            ticket.settle(Outcome::Lost(why.to_owned()));
        }
    }

    /// Returns the number of waiting questions.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().open.len()
    }
}

impl Ticket {
    fn settle(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        // Pairs with the load in `wait`; only a hint, since the lock orders the outcome.
        self.settled.store(true, Ordering::Release);
        self.change.notify_one();
    }

    /// Spins for the outcome for a moment, then sleeps until it is there.
    pub(crate) fn wait(&self) -> Outcome {
        // Pairs with the store in `settle`.
        refit_sys::adaptive_spin::a_moment(|| self.settled.load(Ordering::Acquire));
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            self.change.wait(&mut outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ticket_is_settled_once_and_none_after_the_end() {
        let tickets = Tickets::default();
        let (one, first) = tickets.open().unwrap();
        let (_, second) = tickets.open().unwrap();
        assert_eq!(tickets.waiting(), 2);
        assert!(tickets.settle(one, Outcome::Unanswered));
        assert!(!tickets.settle(one, Outcome::Unanswered));
        assert_eq!(first.wait(), Outcome::Unanswered);
        tickets.close("it is gone");
        assert_eq!(second.wait(), Outcome::Lost("it is gone".to_owned()));
        assert_eq!(tickets.open().unwrap_err(), "it is gone");
    }
}
