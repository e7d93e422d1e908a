//! The memory of a tree of programs: its limit, and how serving them begins and ends.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use parking_lot::{Condvar, Mutex};
use refit_memory::program::{
    AnonymousCacheFactory, BudgetInterface, Commons, Inherited, Outside, Pager, RegionInfo, SHARED,
    create_budget,
};
use refit_memory::store::PageStore;
use refit_objects::{Interface, destroy};
use refit_sys::keeper;
use refit_sys::thread::EndedEarly;
use refit_tracer::Supervisor;
use tracing::info;

use crate::host::{self, LimitError, MIN_LIMIT};
use crate::reclaimer::Reclaimer;
use crate::shared::{Shared, State, Totals};
use crate::warnings::Warnings;

/// The largest size of the swap file: an address space has no more.
const SWAP: u64 = 1 << 40;

/// The memory of a tree of programs.
///
/// # Locks
/// `reclaimer`, held while the reclaimer begins, then the state of `shared`.
pub struct Memory {
    shared: Arc<Shared>,
    reclaimer: Mutex<Option<thread::JoinHandle<()>>>,
}

/// The memory of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramMemory {
    /// The regions that are served; empty if the kernel alone resolves its faults.
    pub regions: Vec<RegionInfo>,
    /// Why it is not served, although it should be.
    pub refused: Option<String>,
}

impl Memory {
    /// Returns the memory of a tree without a limit. Evicted pages go to a file without a name in
    /// `directory` when they take too much room compressed.
    ///
    /// # Errors
    /// [`LimitError::NoFile`].
    pub fn new(supervisor: Arc<Supervisor>, directory: &Path) -> Result<Self, LimitError> {
        let file = host::swap_file(directory, SWAP)?;
        let commons = Arc::new(Commons {
            budget: create_budget("programs", 0),
            store: PageStore::new(0, Some(file)),
            caches: AnonymousCacheFactory::new("programs", SHARED),
        });
        let shared = Arc::new(Shared {
            supervisor: Arc::clone(&supervisor),
            commons,
            state: Mutex::default(),
            call: Condvar::new(),
            short: AtomicBool::new(false),
        });
        let watching = Arc::downgrade(&shared);
        supervisor.watch(move |process| {
            if let Some(shared) = watching.upgrade() {
                shared.on_memory_replaced(process);
            }
        });
        let born = Arc::downgrade(&shared);
        let dumps = Arc::downgrade(&shared);
        supervisor.watch_dumps(move |task, signal| {
            dumps.upgrade().is_some_and(|shared| shared.on_core_dump(task, signal))
        });
        supervisor.watch_births(move |task| {
            born.upgrade().is_some_and(|shared| shared.on_first_stop(task))
        });
        Ok(Self { shared, reclaimer: Mutex::default() })
    }

    /// Sets the limit, in bytes; `None`: all there is. Returns the limit before.
    ///
    /// # Errors
    /// [`LimitError`]; the limit is then what it was.
    pub fn allow(&self, limit: Option<u64>) -> Result<Option<u64>, LimitError> {
        if limit.is_some_and(|bytes| bytes < MIN_LIMIT) {
            return Err(LimitError::TooLittle);
        }
        let mut reclaimer = self.reclaimer.lock();
        if reclaimer.is_none() && limit.is_some() {
            host::check()?;
            *reclaimer = Some(self.begin().map_err(LimitError::NoReclaimer)?);
        }
        let mut state = self.shared.state();
        let before = std::mem::replace(&mut state.limit, limit);
        info!(?limit, ?before, "the limit");
        state.called = true;
        drop(state);
        self.shared.call.notify_all();
        Ok(before)
    }

    /// Starts the reclaimer.
    fn begin(&self) -> io::Result<thread::JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let (ready, is_ready) = mpsc::channel();
        let run = move || {
            // Before anything is served; in this thread, since the event loop's thread waits for
            // all children of its own.
            match keeper::keep_descriptors() {
                Ok(_keeper) => {
                    // The caller waits for this.
                    let _ = ready.send(Ok(()));
                    refit_sys::thread::go_before_others();
                    Reclaimer::new(shared).run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let reclaimer = thread::Builder::new().name("refit-reclaimer".to_owned()).spawn(run)?;
        is_ready.recv().map_err(|_| EndedEarly("it"))??;
        Ok(reclaimer)
    }

    /// Returns the memory of the tree.
    pub fn totals(&self) -> Totals {
        let state = self.shared.state();
        let (limit, totals) = (state.limit, state.totals);
        drop(state);
        let store = self.shared.commons.store.stats();
        // While nothing is limited, the reclaimer runs no rounds.
        let resident = limit.map_or_else(|| self.shared.resident(), |_| totals.resident);
        Totals { limit, resident, store, ..totals }
    }

    /// Returns the programs that are not served although they should be, and why.
    pub fn refused(&self) -> BTreeMap<u32, String> {
        self.shared.state().refused.clone()
    }

    /// Returns how the limit was not enforced, or was enforced badly, since the last call: also for
    /// programs that have ended.
    pub fn take_warnings(&self) -> Warnings {
        let mut state = self.shared.state();
        let now = (state.lost(), state.totals.failures);
        let (lost, failures) = std::mem::replace(&mut state.reported, now);
        let warnings = std::mem::take(&mut state.warnings);
        Warnings { lost: now.0.saturating_sub(lost), failures: now.1 - failures, ..warnings }
    }

    /// Returns the memory of one program.
    pub fn of(&self, process: u32) -> ProgramMemory {
        let state = self.shared.state();
        let refused = state.refused.get(&process).cloned();
        let served = state.served.iter().find(|one| one.process == Some(process));
        let pager = served.map(|one| Arc::clone(&one.pager));
        drop(state);
        let regions = pager.map_or_else(Vec::new, |pager| pager.space().regions());
        ProgramMemory { regions, refused }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.call.notify_all();
        let reclaimer = self.reclaimer.get_mut().take();
        // A panic of the reclaimer is a failure of ours, which was reported.
        let _ = reclaimer.map(thread::JoinHandle::join);
        let mut state = self.shared.state();
        let (served, pagers) =
            (std::mem::take(&mut state.served), std::mem::take(&mut state.pagers));
        drop(state);
        served.iter().for_each(|one| one.pager.end());
        // They give back what they have taken of the budget. A panic was reported.
        pagers.into_iter().for_each(|pager| drop(pager.join()));
        destroy(BudgetInterface::id(self.shared.commons.budget));
    }
}

impl Outside for Shared {
    fn short(&self) {
        // Pairs with the swap in `Reclaimer::run`; the lock below orders it with the reclaimer's
        // wait.
        if !self.short.swap(true, Ordering::AcqRel) {
            self.state().called = true;
            self.call.notify_all();
        }
    }

    fn needed(&self, pager: &Pager) -> Vec<u64> {
        let state = self.state();
        let served = state.served.iter().find(|one| std::ptr::eq(&*one.pager, pager));
        let process = served.and_then(|one| one.process);
        drop(state);
        process.map_or_else(Vec::new, |process| self.supervisor.clear_words(process))
    }

    fn inherited(&self, pager: &Pager, thread: Option<u32>) -> Option<Vec<Inherited>> {
        self.inherited_by(pager, thread)
    }

    fn forked(&self, parent: &Pager, child: Arc<Pager>) {
        let of_parent = |state: &State| {
            let parent = state.served.iter().find(|one| std::ptr::eq(&*one.pager, parent))?;
            Some(parent.child(Arc::clone(&child)))
        };
        let served = of_parent(&self.state());
        if let Some(served) = served
            && let Err(error) = self.serve(served)
        {
            // Otherwise the child would wait for its pages forever.
            refit_log::say(&format!("the memory of a child cannot be limited: {error}"));
            std::process::abort();
        }
        self.let_begin();
    }
}
