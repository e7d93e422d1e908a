//! Pages that move here, and away again: a thread waits for one, the origin is asked for it, and grants it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::dsm::{Access, PAGE, PageRequest, Pager, Store, Window};
use crate::protocol::messages::{Fetch, OutOfMemory, PageContent, PageGrant, PageRecall};
use crate::remote::replica::Replica;
use crate::stats::Times;

/// The pages that are at a replica.
pub(super) struct Pages {
    store: Arc<Store>,
    pager: Arc<Pager>,
    waits: Mutex<Waits>,
}

/// Those that threads wait for.
#[derive(Default)]
struct Waits {
    /// By page: since when.
    since: BTreeMap<u64, Instant>,
    /// Of those that came.
    took: Times,
}

impl Pages {
    /// None yet.
    pub(super) fn new(store: Arc<Store>) -> io::Result<Self> {
        let pager = Pager::new(Arc::clone(&store))?;
        Ok(Self { store, pager, waits: Mutex::default() })
    }

    /// Nobody is heard any more.
    pub(super) fn end(&self) {
        self.pager.end();
    }

    /// How many came that a thread had waited for, and how long that took.
    pub(super) fn came(&self) -> Times {
        self.waits().took
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waits {
    /// A thread waits; where another one does already, both have waited since then.
    fn begin(&mut self, page: u64) {
        self.since.entry(page).or_insert_with(Instant::now);
    }

    /// A page is there. One that came unasked first, or was asked for twice, counts once.
    fn end(&mut self, page: u64) {
        if let Some(since) = self.since.remove(&page) {
            self.took.since(since);
        }
    }
}

impl Replica {
    /// Has pages that threads here wait for asked for.
    pub(super) fn hear(self: &Arc<Self>, window: Window) -> io::Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let (pager, replica) = (Arc::clone(&pages.pager), Arc::clone(self));
        let serve = move || {
            if let Err(error) = pager.serve(window, |wanted| replica.fetch(wanted)) {
                let process = replica.group.process;
                refit_log::say(&format!("a replica of {process} waits for its pages: {error}"));
            }
        };
        thread::Builder::new().name("refit-pager".to_owned()).spawn(serve).map(drop)
    }

    /// A thread here waits for a page.
    fn fetch(&self, wanted: PageRequest) {
        /// So near to its end, memory is left to those who need it at once.
        const NEAR: u64 = 8;
        let PageRequest { page, count, access, is_here } = wanted;
        let group = self.group;
        let room = self.quota.room() / PAGE;
        // Without the origin there is no program.
        if room == 0 && !is_here {
            let _ = self.layer.send(group.home(), &OutOfMemory { group }, &[]);
            return;
        }
        self.pages.iter().for_each(|pages| pages.waits().begin(page));
        let most = u16::try_from(room / NEAR).unwrap_or(u16::MAX).max(1);
        let count = self.mapped.pages_from(page, count.min(most));
        let fetch = Fetch { group, page, count, write: access == Access::Write };
        let _ = self.layer.send(group.home(), &fetch, &[]);
    }

    /// The pages that are here, where pages move.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.pages.as_ref().map(|pages| &*pages.store)
    }

    /// Pages are granted.
    pub(crate) fn grant(&self, grant: &PageGrant, mut body: &[u8]) {
        let Some(pages) = &self.pages else { return };
        let store = &pages.store;
        let access = if grant.write { Access::Write } else { Access::Read };
        let mut page = grant.page;
        for alike in grant.pieces.chunk_by(|one, other| one == other) {
            let length = alike.len() * PAGE as usize;
            let done = match alike[0] {
                PageContent::AlreadyHeld => alike
                    .iter()
                    .zip(0..)
                    .try_for_each(|(_, ahead)| store.permit(page + ahead * PAGE, access)),
                PageContent::Zeros => store.grant(page, &vec![0; length], access),
                PageContent::Data => {
                    body.split_off(..length).map_or(Ok(()), |data| store.grant(page, data, access))
                }
            };
            if let Err(error) = done {
                refit_log::say(&format!("a replica of {}: {error}", self.group.process));
            }
            page += length as u64;
        }
        pages.waits().end(grant.page);
    }

    /// A page goes elsewhere.
    pub(crate) fn yields(&self, question: &PageRecall) -> Option<(PageContent, Vec<u8>)> {
        let PageRecall { page, keeps, .. } = *question;
        let bytes = self.store()?.surrender(page..page + PAGE, keeps).ok()?;
        let zeros = bytes.iter().all(|&byte| byte == 0);
        Some(if zeros { (PageContent::Zeros, Vec::new()) } else { (PageContent::Data, bytes) })
    }

    /// Pages are not needed any more.
    pub(crate) fn drop_pages(&self, ranges: &[Range<u64>]) {
        if let Some(Err(error)) = self.store().map(|store| store.discard(ranges)) {
            refit_log::say(&format!("a replica of {}: {error}", self.group.process));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_counts_once() {
        let mut waits = Waits::default();
        waits.begin(PAGE);
        waits.begin(PAGE);
        waits.begin(2 * PAGE);
        [PAGE, PAGE, 3 * PAGE].into_iter().for_each(|page| waits.end(page));
        assert_eq!((waits.took.count, waits.since.len()), (1, 1));
    }
}
