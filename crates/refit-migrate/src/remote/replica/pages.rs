//! The pages at a replica whose pages move, and the waits of its threads for them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::dsm::{Pager, Store};
use crate::stats::Times;

/// The pages at a replica.
pub(super) struct Pages {
    pub(super) store: Arc<Store>,
    pub(super) pager: Arc<Pager>,
    waits: Mutex<Waits>,
}

/// The pages that threads wait for.
#[derive(Default)]
pub(super) struct Waits {
    /// By page: the time at which the first thread began to wait.
    since: BTreeMap<u64, Instant>,
    /// The times that the pages took which have come.
    took: Times,
}

impl Pages {
    /// Returns the pages of a replica that has none yet.
    pub(super) fn new(store: Arc<Store>) -> io::Result<Self> {
        let pager = Pager::new(Arc::clone(&store))?;
        Ok(Self { store, pager, waits: Mutex::default() })
    }

    /// Ends the pager. Accesses that wait for a page fail: it will not come.
    pub(super) fn end(&self) {
        self.pager.end();
        let awaited: Vec<u64> = self.waits().since.keys().copied().collect();
        awaited.into_iter().for_each(|page| self.store.poison(page));
    }

    /// Returns the number of pages that threads have waited for and received, and the times that
    /// took.
    pub(super) fn received(&self) -> Times {
        self.waits().took
    }

    pub(super) fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock()
    }
}

impl Waits {
    /// Notes that a thread waits for a page. If another thread does already, both count as waiting
    /// since then.
    pub(super) fn begin(&mut self, page: u64) {
        self.since.entry(page).or_insert_with(Instant::now);
    }

    /// Notes that a page has come. A page that came unasked first, or that was asked for twice,
    /// counts once.
    pub(super) fn end(&mut self, page: u64) {
        if let Some(since) = self.since.remove(&page) {
            self.took.since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_SIZE;

    #[test]
    fn each_wait_counts_once() {
        let mut waits = Waits::default();
        waits.begin(PAGE_SIZE);
        waits.begin(PAGE_SIZE);
        waits.begin(2 * PAGE_SIZE);
        [PAGE_SIZE, PAGE_SIZE, 3 * PAGE_SIZE].into_iter().for_each(|page| waits.end(page));
        assert_eq!((waits.took.count, waits.since.len()), (1, 1));
    }
}
