//! Who waits for which answer of one peer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

/// What a question came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The answer and its body.
    Answer(Vec<u8>, Vec<u8>),
    Unanswered,
    /// The peer is lost, and why.
    Lost(String),
}

/// All questions that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    last: u64,
    open: HashMap<u64, Arc<Ticket>>,
    /// Set when there will be no answers any more.
    closed: Option<String>,
}

/// One question.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    /// Set after the outcome is there, so that who spins takes no lock.
    settled: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    change: Condvar,
}

impl Tickets {
    /// A new one, and its number; why the peer is lost, if it is.
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

    /// Whether there was such a ticket.
    pub(crate) fn settle(&self, number: u64, outcome: Outcome) -> bool {
        let ticket = self.0.lock().open.remove(&number);
        ticket.map(|ticket| ticket.settle(outcome)).is_some()
    }

    /// Nobody shall wait for it.
    pub(crate) fn forget(&self, number: u64) {
        self.0.lock().open.remove(&number);
    }

    /// Settles all, and those to come.
    pub(crate) fn close(&self, why: &str) {
        let mut book = self.0.lock();
        book.closed = Some(why.to_owned());
        let open = std::mem::take(&mut book.open);
        drop(book);
        for ticket in open.into_values() {
            ticket.settle(Outcome::Lost(why.to_owned()));
        }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().open.len()
    }
}

impl Ticket {
    fn settle(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        // Pairs with `wait`; only a hint, the lock orders the outcome.
        self.settled.store(true, Ordering::Release);
        self.change.notify_one();
    }

    /// Looks out for the outcome for a moment, then sleeps until it is there.
    pub(crate) fn wait(&self) -> Outcome {
        // Pairs with `settle`.
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
