//! Evicting pages of a program.

use std::sync::atomic::Ordering;

use tracing::debug;

use super::Pager;
use crate::program::hat::{STAGING_AREA, TakeOutcome};
use crate::program::space::RecallBatch;
use crate::{CacheError, PAGE_SIZE, events};

impl Pager {
    /// Evicts up to `most` pages of the program, in one batch. Returns their number.
    ///
    /// # Errors
    /// The store does not accept the pages. They are then kept in refit's memory, beyond any limit,
    /// but never more than one batch: until the store has accepted these, no others leave the
    /// program.
    pub fn evict(&self, most: usize) -> Result<usize, CacheError> {
        let _evict = events::PROGRAM_EVICT.span([most as u64, 0]);
        if !self.can_evict() {
            return Ok(0);
        }
        self.evict_batch(most)
    }

    /// Evicts one batch of a program whose pages can be taken out.
    pub(super) fn evict_batch(&self, most: usize) -> Result<usize, CacheError> {
        let _batch = self.batch.lock();
        if self.ended.load(Ordering::Acquire) {
            return Ok(0);
        }
        let hat = self.space.hat();
        if self.space.keeps_any() {
            // No page of these may come back to the program, or be discarded, meanwhile.
            let _changes = self.changes.write();
            self.space.store_kept()?;
        }
        let reading = self.reading.lock();
        let changes = self.unchanged();
        let Some(mut recalled) = self.space.recall(most.min(STAGING_AREA)) else {
            drop((reading, changes));
            return Ok(self.record_nothing_evicted("no region has a page that can leave"));
        };
        recalled.keep(&self.outside.needed(self));
        if recalled.pages.is_empty() {
            drop((reading, changes));
            return Ok(self.record_nothing_evicted("the kernel writes to all of them"));
        }
        let mut taken = hat.take(&recalled.addresses);
        drop(reading);
        let result = self.put_away(&recalled, &mut taken);
        drop(changes);
        self.ring();
        let which = |what: TakeOutcome| {
            let pages = recalled.addresses.iter().zip(&taken);
            pages.filter(move |(_, taken)| **taken == what).map(|(&address, _)| address)
        };
        if which(TakeOutcome::Moved).next().is_some() {
            hat.clear();
        }
        let shared: Vec<u64> = which(TakeOutcome::Shared).collect();
        if !shared.is_empty() {
            hat.own(&shared);
        }
        if matches!(result, Ok(0)) {
            self.record_nothing_evicted("all of them stay");
        }
        result
    }

    /// Records a round that has found no page to evict. Returns 0, the number of evicted pages.
    fn record_nothing_evicted(&self, why: &str) -> usize {
        if let Some(times) = self.nothing_evicted.count() {
            debug!(program = self.space.name(), why, times, "no page could be evicted");
        }
        0
    }

    /// Puts the pages in the staging area into the store; the others stay. `taken` holds the
    /// kernel's results, which are corrected by the actual contents of the staging area.
    fn put_away(
        &self,
        recalled: &RecallBatch,
        taken: &mut [TakeOutcome],
    ) -> Result<usize, CacheError> {
        let RecallBatch { fcm, pages, addresses, .. } = recalled;
        let hat = self.space.hat();
        let mut bytes = vec![0; pages.len() * PAGE_SIZE];
        let Some(there) = hat.fetch(&mut bytes) else {
            fcm.stay(pages);
            return Ok(0);
        };
        let mut moved = Vec::with_capacity(pages.len());
        let mut stay = Vec::new();
        for (at, &page) in pages.iter().enumerate() {
            if there[at] {
                taken[at] = TakeOutcome::Moved;
                let to = moved.len() * PAGE_SIZE;
                bytes.copy_within(at * PAGE_SIZE..(at + 1) * PAGE_SIZE, to);
                moved.push(at);
                continue;
            }
            if taken[at] == TakeOutcome::Moved {
                // The page is in neither place: an access must raise an error instead of finding
                // zeros.
                self.lost.fetch_add(1, Ordering::Relaxed);
                // A thread that is changing mappings continues as soon as its message has been
                // read, which needs no lock that is held here.
                while !hat.poison(addresses[at]) {
                    refit_sys::thread::give_way();
                }
            }
            stay.push(page);
        }
        bytes.truncate(moved.len() * PAGE_SIZE);
        fcm.stay(&stay);
        let numbers: Vec<u64> = moved.iter().map(|&at| pages[at]).collect();
        fcm.take_back(&numbers, &bytes).inspect_err(|_| {
            // The pages have left the program, and none can be put back before the program's
            // changes have been read, so they are kept here.
            for (&number, page) in numbers.iter().zip(bytes.as_chunks().0) {
                recalled.behind.keep(number, page);
            }
            fcm.left(&numbers);
        })?;
        Ok(numbers.len())
    }
}
