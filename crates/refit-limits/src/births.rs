//! The evicted pages that a child inherits from its parent: the kernel has copied the mappings, and
//! refit copies the tables of evicted pages.
//!
//! Advice that a program gives about its memory determines what a `fork` does with it
//! (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MAP_DROPPABLE`), and nobody reports that advice to refit.
//! So the child's own mappings are read once, while they are as the `fork` has made them: before
//! its first instruction, in the first stop of each process ([`Shared::on_first_stop`]), or earlier
//! if the kernel itself touches the child's memory (`CLONE_CHILD_SETTID`,
//! [`Shared::inherited_by`]). Memory that is not registered with the parent's userfaultfd is not
//! the parent's.
//!
//! ```text
//!   fork ──► message ──► pager of the child ──► forked ──┐ whichever comes second
//!       └──► first stop of the child ──► born ───────────┴──► known by its mark ──► inherit
//! ```

use std::sync::Arc;

use refit_memory::program::{Inherited, Pager};
use refit_sys::{maps, smaps};
use refit_tracer::Resume;
use refit_tracer::process::process_of;

use crate::shared::{Shared, State};

impl Shared {
    /// Handles the first stop of a task. Returns whether the task stays stopped until
    /// [`let_begin`](Self::let_begin), since its pager is not there yet.
    pub(crate) fn on_first_stop(&self, task: u32) -> bool {
        if self.state().served.is_empty() || process_of(task) != Some(task) {
            return false;
        }
        let mut state = self.state();
        if let Some(pager) = state.identify(task) {
            drop(state);
            settle(&pager, task);
            return false;
        }
        let comes = state.forks_from_one_served(task);
        if comes {
            state.expected.push(task);
        }
        comes
    }

    /// Lets children begin whose pagers are there by now.
    pub(crate) fn let_begin(&self) {
        let expected = self.state().expected.clone();
        for process in expected {
            let pager = self.state().identify(process);
            if let Some(pager) = pager {
                settle(&pager, process);
                self.state().expected.retain(|one| *one != process);
                self.supervisor.order_kept(process, |_| Resume::Continue);
            }
        }
    }

    /// Returns what the child has that a pager serves, or `None` if the child is not found, since
    /// it has ended.
    pub(crate) fn inherited_by(
        &self,
        pager: &Pager,
        thread: Option<u32>,
    ) -> Option<Vec<Inherited>> {
        // A child in a PID namespace of its own has another number there.
        let reported = thread.and_then(process_of);
        let process = reported
            .filter(|&one| self.is(pager, one))
            .or_else(|| refit_sys::process::all().find(|&one| self.is(pager, one)))?;
        inherited(process)
    }

    fn is(&self, pager: &Pager, process: u32) -> bool {
        let mut state = self.state();
        let one = state.served.iter_mut().find(|one| std::ptr::eq(&*one.pager, pager));
        one.is_some_and(|one| one.is(process))
    }
}

impl State {
    /// Returns the pager of a process, found by its mark among those whose process is not known
    /// yet. From now on it is known.
    pub(crate) fn identify(&mut self, process: u32) -> Option<Arc<Pager>> {
        let unknown = self.served.iter_mut().filter(|one| one.process.is_none());
        let found = unknown.into_iter().find_map(|one| one.is(process).then_some(one))?;
        found.process = Some(process);
        Some(Arc::clone(&found.pager))
    }

    /// Returns whether a process that has not begun was forked from a memory that was served then:
    /// it has a copy of pages that are registered.
    fn forks_from_one_served(&self, process: u32) -> bool {
        let places: Vec<u64> = self.served.iter().map(|one| one.place()).collect();
        let has = |one: &maps::Mapping| places.iter().any(|place| one.range.contains(place));
        // The kernel looks at every page for the flags, so the mappings are read first.
        maps::of(process).is_ok_and(|all| all.iter().any(has))
            && smaps::of(process).is_ok_and(|all| {
                all.iter().any(|one| has(&one.mapping) && one.flags.has(*b"um"))
            })
            // A process that shares the memory has no copy.
            && !self.served.iter().any(|one| {
                let known = one.process.filter(|&known| known != process);
                known.is_some_and(|known| {
                    refit_sys::process::same_memory(process, known).unwrap_or(false)
                })
            })
    }
}

/// Gives a child's pager what the child has inherited.
pub(crate) fn settle(pager: &Pager, process: u32) {
    if pager.inherits()
        // `None` only if the child has ended.
        && let Some(inherited) = inherited(process)
    {
        pager.inherit(&inherited);
    }
}

fn inherited(process: u32) -> Option<Vec<Inherited>> {
    let all = smaps::of(process).ok()?;
    let registered = all.into_iter().filter(|one| one.flags.has(*b"um"));
    let inherited =
        registered.map(|one| Inherited { range: one.mapping.range, wiped: one.flags.has(*b"wf") });
    Some(inherited.collect())
}
