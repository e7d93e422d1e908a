//! Pages that move to a replica and away again: a thread waits for a page, the replica fetches it
//! from the page home at the origin, and the page home grants it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use crate::dsm::{Access, PageRequest, Store, Window};
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{Fetch, OutOfMemory, PageContent, PageGrant, PageRecall};
use crate::remote::replica::Replica;

impl Replica {
    /// Starts the thread that fetches the pages which threads of the replica wait for.
    pub(super) fn start_pager(self: &Arc<Self>, window: Window) -> io::Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let (pager, replica) = (Arc::clone(&pages.pager), Arc::clone(self));
        let serve = move || {
            if let Err(error) = pager.serve(window, |request| replica.fetch(request)) {
                let process = replica.group.process;
                refit_log::say(&format!("a replica of {process} waits for its pages: {error}"));
            }
        };
        thread::Builder::new().name("refit-pager".to_owned()).spawn(serve).map(drop)
    }

    /// Fetches the pages of a request.
    fn fetch(&self, request: PageRequest) {
        /// The part of the free memory that one request may take is 1 in this many: near its end,
        /// memory is left to the threads that need it at once.
        const RESERVE_FACTOR: u64 = 8;
        let PageRequest { page, count, access, is_here } = request;
        let group = self.group;
        let room = self.quota.room() / PAGE_SIZE;
        // If these messages fail the origin is gone, and with it the program.
        if room == 0 && !is_here {
            let _ = self.layer.send(group.home(), &OutOfMemory { group }, &[]);
            return;
        }
        self.pages.iter().for_each(|pages| pages.waits().begin(page));
        let most = u16::try_from(room / RESERVE_FACTOR).unwrap_or(u16::MAX).max(1);
        let count = self.mapped.pages_from(page, count.min(most));
        let fetch = Fetch { group, page, count, write: access == Access::Write };
        let _ = self.layer.send(group.home(), &fetch, &[]);
    }

    /// Returns the pages that are here, where pages move.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.pages.as_ref().map(|pages| &*pages.store)
    }

    /// Puts granted pages into the store; `body` has their data.
    pub(crate) fn grant(&self, grant: &PageGrant, mut body: &[u8]) {
        let Some(pages) = &self.pages else { return };
        let store = &pages.store;
        let access = Access::of(grant.write);
        let mut page = grant.page;
        for alike in grant.pieces.chunk_by(|one, other| one == other) {
            let length = alike.len() * PAGE_SIZE as usize;
            let done = match alike[0] {
                PageContent::AlreadyHeld => alike
                    .iter()
                    .zip(0..)
                    .try_for_each(|(_, ahead)| store.permit(page + ahead * PAGE_SIZE, access)),
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

    /// Gives up a page that the page home recalls. Returns its content, or `None` if that failed.
    pub(crate) fn surrender(&self, recall: &PageRecall) -> Option<(PageContent, Vec<u8>)> {
        let PageRecall { page, keeps, .. } = *recall;
        let bytes = self.store()?.surrender(page..page + PAGE_SIZE, keeps).ok()?;
        let zeros = bytes.iter().all(|&byte| byte == 0);
        Some(if zeros { (PageContent::Zeros, Vec::new()) } else { (PageContent::Data, bytes) })
    }

    /// Discards pages that the page home invalidates.
    pub(crate) fn drop_pages(&self, ranges: &[Range<u64>]) {
        if let Some(Err(error)) = self.store().map(|store| store.discard(ranges)) {
            refit_log::say(&format!("a replica of {}: {error}", self.group.process));
        }
    }
}
