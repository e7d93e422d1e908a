//! The page home: gives pages to the holders that need them, one after the other, at the origin.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use refit_messages::{InstanceId, Layer};
use refit_sys::userfault::Userfault;
use rustix::io::Errno;

use crate::dsm::directory::Directory;
use crate::dsm::lease::{Leases, Transfer};
use crate::dsm::uffd::{PageRequest, Streams};
use crate::dsm::{Access, Pager, Store, Window};
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{GroupId, PageContent, PageGrant, PageInvalidate, PageRecall};
use crate::stats::Ledger;

/// The number of untouched pages that the program itself gets at once.
const FRESH_PAGES: u64 = 16;

enum PageHomeCommand {
    Fetch(FetchRequest),
    Discard(Vec<Range<u64>>, Sender<io::Result<()>>),
    /// Pages stay where they are from then on, until the sender of the channel is gone.
    Gather(Range<u64>, Sender<io::Result<()>>, Receiver<()>),
    Lost(InstanceId, Sender<usize>),
    End,
}

/// A holder needs a page.
#[derive(Clone, Copy)]
struct FetchRequest {
    by: InstanceId,
    page: u64,
    /// The number of pages that it would like to have in all.
    count: u16,
    access: Access,
    since: Instant,
}

/// The handle of a page home.
#[derive(Clone)]
pub(crate) struct PageHomeHandle {
    commands: Sender<PageHomeCommand>,
    store: Arc<Store>,
}

/// The page home of a group.
pub(crate) struct PageHome {
    group: GroupId,
    layer: Arc<Layer>,
    directory: Directory,
    store: Arc<Store>,
    queue: Receiver<PageHomeCommand>,
    ledger: Arc<Ledger>,
    /// The holders that go through memory in order.
    streams: BTreeMap<InstanceId, Streams>,
    leases: Leases,
    /// Requests that wait for the end of a lease.
    waiting: Vec<FetchRequest>,
    /// Called when pages are lost.
    on_lost: Box<dyn Fn(&str) + Send>,
}

impl PageHome {
    /// Starts the page home of a group, all of whose pages are in `frames` at its origin. Two
    /// threads of ours serve until it is [closed](PageHomeHandle::close). `on_lost` is called when
    /// pages are lost, before the holder that has asked for them receives an answer.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn begin(
        group: GroupId,
        layer: &Arc<Layer>,
        (frames, userfault): (Arc<std::fs::File>, Userfault),
        (window, ledger): (Window, Arc<Ledger>),
        on_lost: impl Fn(&str) + Send + 'static,
    ) -> io::Result<PageHomeHandle> {
        let store = Store::new(frames, userfault);
        let (commands, queue) = mpsc::channel();
        let handle = PageHomeHandle { commands, store: Arc::clone(&store) };
        let pager = Pager::new(Arc::clone(&store))?;
        let (fetcher, ends) = (handle.clone(), Arc::clone(&pager));
        let serve = move || {
            let fetch = |request: PageRequest| {
                fetcher.fetch(group.home(), request.page, request.count, request.access);
            };
            if let Err(error) = pager.serve(window, fetch) {
                refit_log::say(&format!("process {} waits for its pages: {error}", group.process));
            }
        };
        thread::Builder::new().name("refit-pager".to_owned()).spawn(serve)?;
        let page_home = Self {
            group,
            layer: Arc::clone(layer),
            directory: Directory::new(group.home()),
            store,
            queue,
            ledger,
            streams: BTreeMap::new(),
            leases: Leases::default(),
            waiting: Vec::new(),
            on_lost: Box::new(on_lost),
        };
        let serve = move || {
            page_home.serve();
            ends.end();
        };
        thread::Builder::new().name("refit-page-home".to_owned()).spawn(serve)?;
        Ok(handle)
    }

    fn serve(mut self) {
        while let Some(command) = self.next_command() {
            if !matches!(command, PageHomeCommand::Fetch(_)) {
                // Earlier requests are served before.
                self.end_lease();
            }
            match command {
                PageHomeCommand::Fetch(fetch) => self.on_fetch(fetch),
                // The caller may have gone.
                PageHomeCommand::Discard(ranges, done) => drop(done.send(self.discard(&ranges))),
                PageHomeCommand::Gather(range, done, over) => {
                    drop(done.send(self.gather(&range)));
                    // The gatherer ends the wait by closing the channel.
                    let _ = over.recv();
                }
                PageHomeCommand::Lost(holder, done) => {
                    let _ = done.send(self.directory.forget_holder(holder));
                }
                PageHomeCommand::End => break,
            }
        }
    }

    /// Returns the next command, or `None` if nobody is left who could send one. Leases end
    /// meanwhile.
    fn next_command(&mut self) -> Option<PageHomeCommand> {
        loop {
            let now = Instant::now();
            if self.leases.expire(now) {
                self.end_lease();
            }
            let Some(due) = self.leases.due() else { return self.queue.recv().ok() };
            match self.queue.recv_timeout(due.saturating_duration_since(now)) {
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Ends the lease, and serves the requests that have waited for it.
    fn end_lease(&mut self) {
        self.leases.end();
        for fetch in std::mem::take(&mut self.waiting) {
            self.serve_fetch(fetch);
        }
    }

    /// Serves a request, unless another holder's lease keeps the page.
    fn on_fetch(&mut self, mut fetch: FetchRequest) {
        let writer = self.directory.writer(fetch.page).filter(|&writer| writer != fetch.by);
        if writer.is_some_and(|writer| self.leases.is_held_by(writer)) {
            return self.waiting.push(fetch);
        }
        if self.leases.is_held_by(self.group.home()) {
            // Pages beyond the first would be taken from the holder of the lease.
            fetch.count = 1;
        }
        self.serve_fetch(fetch);
    }

    fn serve_fetch(&mut self, fetch: FetchRequest) {
        let FetchRequest { by, page, count, access, since } = fetch;
        let taken =
            access == Access::Write && self.directory.writer(page).is_some_and(|one| one != by);
        let begins = self.leases.note(Transfer { by, page, taken }, Instant::now());
        let mut counts = self.ledger.counts();
        counts.pages.turns += u64::from(begins);
        if by != self.group.home() {
            counts.pages.waits.since(since);
        }
        drop(counts);
        if let Err(error) = self.fetch(by, page, count, access) {
            self.report_lost(page, &error);
            if by == self.group.home() {
                self.store.poison(page);
            }
        }
    }

    /// Gives a holder a page, and some of those after it that are at hand.
    fn fetch(&mut self, by: InstanceId, page: u64, count: u16, access: Access) -> io::Result<()> {
        let began = Instant::now();
        if by == self.group.home() {
            let done = self.fetch_home(page, access);
            self.ledger.counts().pages.home.since(began);
            return done;
        }
        let mut builder = GrantBuilder::default();
        let mut next = page;
        if !self.directory.at_hand(by, page, access) {
            let plan = self.directory.fetch(by, page, access);
            match plan.from {
                None => builder.pieces.push(PageContent::AlreadyHeld),
                Some(from) => builder.add(&self.take(from, page, plan.keeps)?),
            }
            self.drop_at_all(plan.lose, page)?;
            next += PAGE_SIZE;
        }
        let end = page.saturating_add(u64::from(count) * PAGE_SIZE);
        let here = (next..end).step_by(PAGE_SIZE as usize);
        let run = here.take_while(|&one| self.directory.at_hand(by, one, access)).count() as u64;
        let run = next..next + run * PAGE_SIZE;
        for one in run.clone().step_by(PAGE_SIZE as usize) {
            self.directory.fetch(by, one, access);
        }
        if !run.is_empty() {
            builder.add(&self.store.surrender(run, access == Access::Read)?);
        }
        self.count(by, page, access, &builder.pieces, began);
        let GrantBuilder { pieces, body } = builder;
        let grant = PageGrant { group: self.group, page, write: access == Access::Write, pieces };
        // A holder that is lost is reported as such.
        let _ = self.layer.send(by, &grant, &body);
        Ok(())
    }

    fn count(
        &mut self,
        by: InstanceId,
        page: u64,
        access: Access,
        pieces: &[PageContent],
        began: Instant,
    ) {
        let streams = self.streams.entry(by).or_default();
        let used = streams.take(page).map_or(0, |run| u64::from(run.count.saturating_sub(1)));
        streams.put(page, u16::try_from(pieces.len()).unwrap_or(u16::MAX), 0);
        let many = |like: PageContent| pieces.iter().filter(|&&piece| piece == like).count() as u64;
        let mut counts = self.ledger.counts();
        let pages = &mut counts.pages;
        pages.fetches.since(began);
        pages.to_write += u64::from(access == Access::Write);
        pages.sent += many(PageContent::Data);
        pages.zeros += many(PageContent::Zeros);
        pages.permitted += many(PageContent::AlreadyHeld);
        pages.ahead += pieces.len().saturating_sub(1) as u64;
        pages.ahead_used += used;
    }

    fn fetch_home(&mut self, page: u64, access: Access) -> io::Result<()> {
        let fresh = self.directory.at_home(page);
        let plan = self.directory.fetch(self.group.home(), page, access);
        let bytes = match plan.from {
            None => None,
            Some(from) => Some(self.take(from, page, plan.keeps)?),
        };
        self.drop_at_all(plan.lose, page)?;
        match bytes {
            Some(bytes) => self.store.grant(page, &bytes, access)?,
            None => self.store.permit(page, access)?,
        }
        if fresh {
            let after = (1..FRESH_PAGES).map(|ahead| page + ahead * PAGE_SIZE);
            for page in after.take_while(|&page| self.directory.at_home(page)) {
                if !self.store.fresh(page) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes a page from a holder, which keeps it for reading if `keeps`.
    fn take(&self, from: InstanceId, page: u64, keeps: bool) -> io::Result<Vec<u8>> {
        if from == self.group.home() {
            return self.store.surrender(page..page + PAGE_SIZE, keeps);
        }
        self.ledger.counts().pages.taken += 1;
        let question = PageRecall { group: self.group, page, keeps };
        let (answer, bytes) = self.layer.ask(from, &question, &[]).map_err(io::Error::other)?;
        match answer {
            Some(PageContent::Data) if bytes.len() as u64 == PAGE_SIZE => Ok(bytes),
            Some(PageContent::Zeros) => Ok(vec![0; PAGE_SIZE as usize]),
            _ => Err(io::Error::other(NotHeld(from))),
        }
    }

    fn drop_at_all(&self, holders: Vec<InstanceId>, page: u64) -> io::Result<()> {
        let range = page..page + PAGE_SIZE;
        holders.into_iter().try_for_each(|holder| self.drop_at(holder, vec![range.clone()]))
    }

    fn drop_at(&self, holder: InstanceId, ranges: Vec<Range<u64>>) -> io::Result<()> {
        if holder == self.group.home() {
            return self.store.discard(&ranges);
        }
        // A holder that is lost has it no more.
        let _ = self.layer.ask(holder, &PageInvalidate { group: self.group, ranges }, &[]);
        Ok(())
    }

    fn discard(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        for range in ranges {
            for (holder, ranges) in self.directory.discard(range) {
                self.drop_at(holder, ranges)?;
            }
        }
        Ok(())
    }

    fn gather(&mut self, range: &Range<u64>) -> io::Result<()> {
        for page in self.directory.away(range) {
            // A gatherer can do without the page; the program cannot.
            self.fetch_home(page, Access::Write)
                .inspect_err(|error| self.report_lost(page, error))?;
        }
        Ok(())
    }

    fn report_lost(&self, page: u64, error: &io::Error) {
        (self.on_lost)(&format!("the page at {page:#x} is lost: {error}"));
    }
}

/// The error that a node does not have a page which the directory says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} has it no more")]
struct NotHeld(InstanceId);

/// Pages that are about to be granted.
#[derive(Default)]
struct GrantBuilder {
    pieces: Vec<PageContent>,
    body: Vec<u8>,
}

impl GrantBuilder {
    /// Adds whole pages. Pages of zeros are not sent.
    fn add(&mut self, pages: &[u8]) {
        for page in pages.chunks(PAGE_SIZE as usize) {
            let zeros = page.iter().all(|&byte| byte == 0);
            self.pieces.push(if zeros { PageContent::Zeros } else { PageContent::Data });
            if !zeros {
                self.body.extend(page);
            }
        }
    }
}

impl PageHomeHandle {
    /// Requests a page for a holder, which would like to have `count` pages in all.
    pub(crate) fn fetch(&self, by: InstanceId, page: u64, count: u16, access: Access) {
        self.send(PageHomeCommand::Fetch(FetchRequest {
            by,
            page,
            count,
            access,
            since: Instant::now(),
        }));
    }

    /// Discards the pages of these ranges, wherever they are.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn discard(&self, ranges: Vec<Range<u64>>) -> io::Result<()> {
        let (done, result) = mpsc::channel();
        self.send(PageHomeCommand::Discard(ranges, done));
        result.recv().map_err(|_| Errno::SRCH)?
    }

    /// Does `work` while all pages of a range are at the origin.
    ///
    /// # Errors
    /// A page is lost.
    pub(crate) fn gather<R>(&self, range: Range<u64>, work: impl FnOnce() -> R) -> io::Result<R> {
        let (done, result) = mpsc::channel();
        let (hold, over) = mpsc::channel::<()>();
        self.send(PageHomeCommand::Gather(range, done, over));
        result.recv().map_err(|_| Errno::SRCH)??;
        let result = work();
        drop(hold);
        Ok(result)
    }

    /// Forgets a holder that is lost. Returns the number of pages that only it had.
    pub(crate) fn forget_holder(&self, holder: InstanceId) -> usize {
        let (done, result) = mpsc::channel();
        self.send(PageHomeCommand::Lost(holder, done));
        result.recv().unwrap_or_default()
    }

    /// Serves a mapping of frames that no thread can touch yet.
    ///
    /// # Errors
    /// It cannot be served.
    pub(crate) fn watch(&self, range: &Range<u64>) -> io::Result<()> {
        self.store.watch(range)
    }

    /// Ends the page home.
    pub(crate) fn close(&self) {
        self.send(PageHomeCommand::End);
    }

    fn send(&self, command: PageHomeCommand) {
        // A page home that has ended drops what waits for an answer.
        let _ = self.commands.send(command);
    }
}
