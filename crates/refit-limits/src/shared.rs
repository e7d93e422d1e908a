//! What the reclaimer, the event loop and callers of [`Memory`](crate::Memory) share.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use refit_memory::PAGE_SIZE;
use refit_memory::program::Commons;
use refit_memory::store::StoreStats;
use refit_tracer::Supervisor;
use tracing::debug;

use crate::served::Served;
use crate::survey;
use crate::warnings::Warnings;

/// What the reclaimer and others look at.
pub(crate) struct Shared {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) commons: Arc<Commons>,
    pub(crate) state: Mutex<State>,
    /// Rung when `state.limit` changes, when frames are short, and at the end.
    pub(crate) call: Condvar,
    /// Frames are short; apart from `state`, since faults wait for whoever tells.
    pub(crate) short: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    /// In bytes.
    pub(crate) limit: Option<u64>,
    pub(crate) called: bool,
    pub(crate) ended: bool,
    pub(crate) served: Vec<Served>,
    /// The threads of pagers that have not ended yet, or not long ago.
    pub(crate) pagers: Vec<thread::JoinHandle<()>>,
    /// The process that is being planted into, until it has another memory, or none.
    pub(crate) planting: Option<u32>,
    /// Children that stand in their first stop until their pagers are there ([`births`]).
    pub(crate) expected: Vec<u32>,
    /// Programs that are not served, and why.
    pub(crate) refused: BTreeMap<u32, String>,
    pub(crate) totals: Totals,
    /// Pages that were lost of programs that are not served any more.
    pub(crate) lost_of_ended: u64,
    /// What has been told: pages that were lost, and faults of our own.
    pub(crate) told: (u64, u64),
    pub(crate) warnings: Warnings,
}

/// What a tree's memory comes to, in bytes, when the reclaimer last looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What it may have; `None`: all there is.
    pub limit: Option<u64>,
    /// Anonymous memory that is in the programs.
    pub resident: u64,
    /// Of that, what is served here.
    pub served: u64,
    /// Pages that are out, by where they are.
    pub store: StoreStats,
    /// Pages that were lost: the disk did not give them back.
    pub lost: u64,
    /// The store takes no more pages: more is in memory than may be.
    pub full: bool,
    /// How often the reclaimer has met a fault of its own, and has limited nothing for as long.
    pub failures: u64,
}

impl State {
    /// Serves those no more that are `gone`.
    pub(crate) fn end(&mut self, gone: impl FnMut(&mut Served) -> bool) {
        for one in self.served.extract_if(.., gone) {
            one.pager.end();
            self.lost_of_ended += one.pager.lost();
        }
    }

    /// Pages that were lost.
    pub(crate) fn lost(&self) -> u64 {
        let of_served: u64 = self.served.iter().map(|one| one.pager.lost()).sum();
        self.lost_of_ended + of_served
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, or one operation on a collection.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes of anonymous memory all programs have in memory now.
    pub(crate) fn resident(&self) -> u64 {
        self.supervisor.process_numbers().into_iter().map(survey::resident).sum()
    }

    /// A process has another memory, or none.
    pub(crate) fn changed(&self, process: u32) {
        let mut state = self.state();
        state.refused.remove(&process);
        state.planting.take_if(|planting| *planting == process);
        state.expected.retain(|expected| *expected != process);
        state.end(|one| one.process == Some(process));
    }

    /// A program is not served, although it should be.
    pub(crate) fn refuse(&self, process: u32, why: &io::Error) {
        let name = refit_sys::process::name(process);
        debug!(process, name, %why, "is not served");
        // Nothing is left to be limited.
        let ended = why.raw_os_error() == Some(libc::ESRCH) || survey::resident(process) == 0;
        let mut state = self.state();
        if !ended {
            state.warnings.unserved(name, why.to_string());
        }
        state.refused.insert(process, why.to_string());
    }

    /// Waits, whoever calls, for so long; whether it is the end.
    pub(crate) fn rest(&self, long: Duration) -> bool {
        let state = self.state();
        let waited = self.call.wait_timeout_while(state, long, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Waits for a call, but no longer than `most`; whether it was the last.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let state = self.state();
        let quiet = |state: &mut State| !state.called && !state.ended;
        let waited = self.call.wait_timeout_while(state, most, quiet);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.called = false;
        state.ended
    }

    /// Has a pager serve, in a thread of its own.
    pub(crate) fn serve(&self, one: Served) -> io::Result<()> {
        let pager = Arc::clone(&one.pager);
        let serve = move || {
            pager.serve();
            pager.dismiss();
        };
        let thread = thread::Builder::new().name("refit-pager".to_owned()).spawn(serve)?;
        debug!(process = ?one.process, child = one.child, "is served");
        let mut state = self.state();
        state.pagers.retain(|pager| !pager.is_finished());
        state.pagers.push(thread);
        state.served.push(one);
        Ok(())
    }
}

/// Pages, in bytes.
pub(crate) fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}
