//! Loans of the program to another process of refit, which acts on it while it is stopped
//! ([`refit_tracer::loan`]). All threads return before, since only here can their registers be
//! read and set. When the loan is over, replicas invalidate everything, as the code and the
//! mappings may be others, and the threads leave again.

use std::io;
use std::sync::mpsc::Sender;

use rustix::io::Errno;

use crate::origin::coordinator::{Coordinator, Next};

/// The end of the addresses that programs use.
const END: u64 = 1 << 47;

impl Coordinator {
    /// Handles a request for a loan: tells `ready` when all threads are here, and lets no thread
    /// leave until the loan is over. A program whose pages move between hosts is not lent.
    pub(super) fn on_lend(&mut self, ready: Sender<io::Result<()>>) -> Next {
        if self.space.page_home.is_some() {
            // Its code is frames, which the borrower could not change.
            self.loans.refuse(&ready, Errno::OPNOTSUPP.into());
            return Ok(());
        }
        self.loans.add(ready);
        let all: Vec<u32> = self.threads.keys().copied().collect();
        all.into_iter().for_each(|one| self.recall(one));
        self.stop_if_all_are_here();
        Ok(())
    }

    /// Handles the end of a loan, or of the wait for it.
    pub(super) fn on_loan_over(&mut self) -> Next {
        self.loans.end();
        if self.loans.are_any() {
            return Ok(());
        }
        let window = self.space.window.clone();
        if let Err(error) = self.invalidate(&[0..window.start, window.end..END]) {
            self.kill(&format!("changes of its code cannot be sent to other instances: {error}"));
            return Ok(());
        }
        self.thaw();
        let all: Vec<u32> = self.threads.keys().copied().collect();
        all.into_iter().try_for_each(|id| self.settle(id))
    }
}
