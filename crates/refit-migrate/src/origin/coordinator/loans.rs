//! The loans of a program that are under way, or wait for its threads to return.

use std::io;
use std::sync::mpsc::Sender;

/// The loans of a program. A borrower that waits no more ends its loan like any other.
#[derive(Debug, Default)]
pub(super) struct Loans {
    /// The number of loans.
    count: usize,
    /// Notified when all threads are here.
    waiting: Vec<Sender<io::Result<()>>>,
}

impl Loans {
    /// Whether threads stay for a loan.
    pub(super) fn are_any(&self) -> bool {
        self.count > 0
    }

    /// Adds a loan that waits.
    pub(super) fn add(&mut self, ready: Sender<io::Result<()>>) {
        self.count += 1;
        self.waiting.push(ready);
    }

    /// Refuses a loan, which its borrower ends all the same.
    pub(super) fn refuse(&mut self, ready: &Sender<io::Result<()>>, why: io::Error) {
        self.count += 1;
        // The borrower may wait no more.
        let _ = ready.send(Err(why));
    }

    /// Lets the loans begin that wait.
    pub(super) fn begin(&mut self) {
        for ready in self.waiting.drain(..) {
            // As above.
            let _ = ready.send(Ok(()));
        }
    }

    /// Ends a loan.
    pub(super) fn end(&mut self) {
        self.count -= 1;
    }
}
