//! The state that the reclaimer, the event loop and callers of [`Memory`](crate::Memory) share.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use refit_memory::PAGE_SIZE;
use refit_memory::program::Commons;
use refit_memory::store::StoreStats;
use refit_tracer::Supervisor;
use tracing::debug;

use crate::served::Served;
use crate::survey;
use crate::warnings::Warnings;

/// The state of a tree's memory.
pub(crate) struct Shared {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) commons: Arc<Commons>,
    pub(crate) state: Mutex<State>,
    /// Notified when `state.limit` changes, when frames are short, and at the end.
    pub(crate) call: Condvar,
    /// Whether frames are short. Not in `state`, since faults wait for the thread that reports it.
    pub(crate) short: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    /// In bytes.
    pub(crate) limit: Option<u64>,
    pub(crate) called: bool,
    pub(crate) ended: bool,
    pub(crate) served: Vec<Served>,
    /// The threads of pagers that have not ended yet, or have ended recently.
    pub(crate) pagers: Vec<thread::JoinHandle<()>>,
    /// The process that is being set up, until it has another memory, or none.
    pub(crate) setting_up: Option<u32>,
    /// Children that are kept in their first stop until their pagers are there
    /// ([`births`](crate::births)).
    pub(crate) expected: Vec<u32>,
    /// Programs that are not served, and why.
    pub(crate) refused: BTreeMap<u32, String>,
    pub(crate) totals: Totals,
    /// The number of lost pages of programs that are not served any more.
    pub(crate) lost_of_ended: u64,
    /// The counts that [`Memory::take_warnings`](crate::Memory::take_warnings) has returned so far:
    /// pages that were lost, and failures of the reclaimer.
    pub(crate) reported: (u64, u64),
    pub(crate) warnings: Warnings,
}

/// The memory of a tree, in bytes, when the reclaimer looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The limit; `None`: all there is.
    pub limit: Option<u64>,
    /// Anonymous memory that is resident in the programs.
    pub resident: u64,
    /// The part of that which is served here.
    pub served: u64,
    /// Evicted pages, by where they are.
    pub store: StoreStats,
    /// Pages that were lost: the disk did not give them back.
    pub lost: u64,
    /// Whether the store takes no more pages, so that more is resident than the limit permits.
    pub full: bool,
    /// The number of failures of the reclaimer itself, during each of which nothing was limited.
    pub failures: u64,
}

impl State {
    /// Ends the pagers of those programs for which `has_ended` returns true.
    pub(crate) fn end(&mut self, has_ended: impl FnMut(&mut Served) -> bool) {
        for one in self.served.extract_if(.., has_ended) {
            debug!(process = ?one.process, unknown = one.unknown, "is served no more");
            one.pager.end();
            self.lost_of_ended += one.pager.lost();
        }
    }

    /// Returns the number of pages that were lost.
    pub(crate) fn lost(&self) -> u64 {
        let of_served: u64 = self.served.iter().map(|one| one.pager.lost()).sum();
        self.lost_of_ended + of_served
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the number of bytes of anonymous memory that all programs have resident now.
    pub(crate) fn resident(&self) -> u64 {
        self.supervisor.process_numbers().into_iter().map(survey::resident).sum()
    }

    /// Handles a process that has another memory, or none.
    pub(crate) fn on_memory_replaced(&self, process: u32) {
        let mut state = self.state();
        state.refused.remove(&process);
        state.setting_up.take_if(|setting_up| *setting_up == process);
        state.expected.retain(|expected| *expected != process);
        state.end(|one| one.process == Some(process));
    }

    /// Notes that a program is not served, although it should be.
    pub(crate) fn refuse(&self, process: u32, why: &io::Error) {
        let name = refit_sys::process::name(process);
        debug!(process, name, %why, "is not served");
        // Nothing is left to be limited.
        let ended = why.raw_os_error() == Some(libc::ESRCH) || survey::resident(process) == 0;
        let mut state = self.state();
        if !ended {
            state.warnings.add_unserved(name, why.to_string());
        }
        state.refused.insert(process, why.to_string());
    }

    /// Waits for this time, even if notified. Returns whether the end has come.
    pub(crate) fn rest(&self, long: Duration) -> bool {
        let mut state = self.state();
        self.call.wait_while_for(&mut state, |state| !state.ended, long);
        state.ended
    }

    /// Waits for a notification, for at most this time. Returns whether the end has come.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let mut state = self.state();
        let quiet = |state: &mut State| !state.called && !state.ended;
        self.call.wait_while_for(&mut state, quiet, most);
        state.called = false;
        state.ended
    }

    /// Starts the thread of a pager.
    pub(crate) fn serve(&self, one: Served) -> io::Result<()> {
        let pager = Arc::clone(&one.pager);
        let serve = move || {
            pager.serve();
            pager.dismiss();
        };
        debug!(process = ?one.process, child = one.child, "is served");
        // Held until the list has it: the pager looks for itself there as soon as it runs, and
        // would take a child that it does not find for one that has ended.
        let mut state = self.state();
        let thread = thread::Builder::new().name("refit-pager".to_owned()).spawn(serve)?;
        state.pagers.retain(|pager| !pager.is_finished());
        state.pagers.push(thread);
        state.served.push(one);
        Ok(())
    }
}

/// Returns the number of bytes of pages.
pub(crate) fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}
