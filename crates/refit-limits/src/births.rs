//! What a child has of its parent's memory, as far as that is out of both: the kernel has copied the mappings, and refit the tables.
//!
//! Advice that a program gives about its memory says what a `fork` does with it (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MAP_DROPPABLE`), and
//! nobody tells refit of that advice. So the child's own mappings are looked at once, while they are what the `fork` has made them: before
//! its first instruction, in the first stop of each process ([`Shared::born`]), or before that where the kernel itself touches the
//! child's memory (`CLONE_CHILD_SETTID`, [`Shared::inherited_by`]). What is not registered with the parent's userfaultfd is not the parent's.
//!
//! ```text
//!   fork ──► message ──► pager of the child ──► forked ──┐ whichever comes second
//!       └──► first stop of the child ──► born ───────────┴──► child is known by its mark ──► inherit ──► it begins
//! ```

use std::sync::Arc;

use refit_memory::program::{Inherited, Pager};
use refit_sys::{maps, smaps};
use refit_tracer::Resume;
use refit_tracer::process::process_of;

use crate::shared::{Shared, State};

impl Shared {
    /// A task stands in its first stop. Whether it stays there until [`let_begin`](Self::let_begin): its pager is not there yet.
    pub(crate) fn born(&self, task: u32) -> bool {
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
                self.supervisor.order_kept(process, |_| Resume::GoOn);
            }
        }
    }

    /// What the child has that a pager serves; `None`: it cannot be found, since it has ended.
    pub(crate) fn inherited_by(
        &self,
        pager: &Pager,
        thread: Option<u32>,
    ) -> Option<Vec<Inherited>> {
        // In a namespace of its own its number is another one.
        let told = thread.and_then(process_of);
        let process = told
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
    /// Finds the pager of a child that it is not known of yet whose it is; from now on it is.
    pub(crate) fn identify(&mut self, process: u32) -> Option<Arc<Pager>> {
        let unknown = self.served.iter_mut().filter(|one| one.process.is_none());
        let found = unknown.into_iter().find_map(|one| one.is(process).then_some(one))?;
        found.process = Some(process);
        Some(Arc::clone(&found.pager))
    }

    /// Whether a process that has not begun has been made from a memory that was served then: it has a copy of pages that are registered.
    fn forks_from_one_served(&self, process: u32) -> bool {
        let places: Vec<u64> = self.served.iter().map(|one| one.place()).collect();
        let has = |one: &maps::Mapping| places.iter().any(|place| one.range.contains(place));
        // The kernel looks at every page for the flags.
        maps::of(process).is_ok_and(|all| all.iter().any(has))
            && smaps::of(process).is_ok_and(|all| {
                all.iter().any(|one| has(&one.mapping) && one.flags.has(*b"um"))
            })
            // One that has the memory itself is no copy.
            && !self.served.iter().any(|one| {
                let known = one.process.filter(|&known| known != process);
                known.is_some_and(|known| {
                    refit_sys::process::same_memory(process, known).unwrap_or(false)
                })
            })
    }
}

/// Tells a child's pager what the child has.
pub(crate) fn settle(pager: &Pager, process: u32) {
    if pager.inherits()
        // It has ended, if not.
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
