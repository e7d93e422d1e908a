//! Gives pages to those who need them, one after the other, at the origin.

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
use crate::dsm::lease::{Needed, Turns};
use crate::dsm::uffd::{PageRequest, Streams};
use crate::dsm::{Access, Pager, Store, Window};
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{GroupId, PageContent, PageGrant, PageInvalidate, PageRecall};
use crate::stats::Ledger;

/// Pages that nobody has touched are given to the program itself so many at once.
const FRESH: u64 = 16;

enum PageHomeCommand {
    PageQuestion(PageQuestion),
    Discard(Vec<Range<u64>>, Sender<io::Result<()>>),
    /// Pages stay where they are then, until nobody sends any more.
    Gather(Range<u64>, Sender<io::Result<()>>, Receiver<()>),
    Lost(InstanceId, Sender<usize>),
    End,
}

/// A holder needs a page.
#[derive(Clone, Copy)]
struct PageQuestion {
    by: InstanceId,
    page: u64,
    /// It would like to have so many in all.
    count: u16,
    access: Access,
    asked: Instant,
}

/// How a page home is asked.
#[derive(Clone)]
pub(crate) struct PageHomeHandle {
    asks: Sender<PageHomeCommand>,
    store: Arc<Store>,
}

/// Who gives pages.
pub(crate) struct PageHome {
    group: GroupId,
    layer: Arc<Layer>,
    directory: Directory,
    store: Arc<Store>,
    asked: Receiver<PageHomeCommand>,
    ledger: Arc<Ledger>,
    /// Who goes through memory in order, by holder.
    streams: BTreeMap<InstanceId, Streams>,
    turns: Turns,
    /// What waits for the end of a turn.
    waiting: Vec<PageQuestion>,
    /// Is told when pages are lost.
    failed: Box<dyn Fn(&str) + Send>,
}

impl PageHome {
    /// Begins to give the pages of a group, all of which are in `frames` at its origin: two threads of ours serve until the library is
    /// [closed](PageHomeHandle::close). `failed` is told when pages are lost, before whoever has asked for them.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn begin(
        group: GroupId,
        layer: &Arc<Layer>,
        (frames, userfault): (Arc<std::fs::File>, Userfault),
        (window, ledger): (Window, Arc<Ledger>),
        failed: impl Fn(&str) + Send + 'static,
    ) -> io::Result<PageHomeHandle> {
        let store = Store::new(frames, userfault);
        let (asks, asked) = mpsc::channel();
        let handle = PageHomeHandle { asks, store: Arc::clone(&store) };
        let pager = Pager::new(Arc::clone(&store))?;
        let (heard, ends) = (handle.clone(), Arc::clone(&pager));
        let serve = move || {
            let fetch = |wanted: PageRequest| {
                heard.fetch(group.home(), wanted.page, wanted.count, wanted.access);
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
            asked,
            ledger,
            streams: BTreeMap::new(),
            turns: Turns::default(),
            waiting: Vec::new(),
            failed: Box::new(failed),
        };
        let serve = move || {
            page_home.serve();
            ends.end();
        };
        thread::Builder::new().name("refit-page-home".to_owned()).spawn(serve)?;
        Ok(handle)
    }

    fn serve(mut self) {
        while let Some(ask) = self.next() {
            if !matches!(ask, PageHomeCommand::PageQuestion(_)) {
                // What was asked before is done before.
                self.end_turn();
            }
            match ask {
                PageHomeCommand::PageQuestion(fetch) => self.meet(fetch),
                // Who has asked may have gone.
                PageHomeCommand::Discard(ranges, done) => drop(done.send(self.discard(&ranges))),
                PageHomeCommand::Gather(range, done, over) => {
                    drop(done.send(self.gather(&range)));
                    // It tells by being gone.
                    let _ = over.recv();
                }
                PageHomeCommand::Lost(holder, done) => drop(done.send(self.directory.lost(holder))),
                PageHomeCommand::End => break,
            }
        }
    }

    /// What is asked next, unless nobody is left who could; turns end meanwhile.
    fn next(&mut self) -> Option<PageHomeCommand> {
        loop {
            let now = Instant::now();
            if self.turns.over(now) {
                self.end_turn();
            }
            let Some(due) = self.turns.due() else { return self.asked.recv().ok() };
            match self.asked.recv_timeout(due.saturating_duration_since(now)) {
                Ok(ask) => return Some(ask),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// What has waited for the end of a turn is given.
    fn end_turn(&mut self) {
        self.turns.end();
        for fetch in std::mem::take(&mut self.waiting) {
            self.give(fetch);
        }
    }

    /// A holder is to have a page, when it is not another one's turn.
    fn meet(&mut self, mut fetch: PageQuestion) {
        let writer = self.directory.writer(fetch.page).filter(|&writer| writer != fetch.by);
        if writer.is_some_and(|writer| self.turns.is_of(writer)) {
            return self.waiting.push(fetch);
        }
        if self.turns.is_of(self.group.home()) {
            // What comes with it would be taken from there.
            fetch.count = 1;
        }
        self.give(fetch);
    }

    fn give(&mut self, fetch: PageQuestion) {
        let PageQuestion { by, page, count, access, asked } = fetch;
        let taken =
            access == Access::Write && self.directory.writer(page).is_some_and(|one| one != by);
        let begins = self.turns.note(Needed { by, page, taken }, Instant::now());
        let mut counts = self.ledger.counts();
        counts.pages.turns += u64::from(begins);
        if by != self.group.home() {
            counts.pages.waits.since(asked);
        }
        drop(counts);
        if let Err(error) = self.fetch(by, page, count, access) {
            self.is_lost(page, &error);
        }
    }

    /// A holder has a page, and some of those after it if they are at hand.
    fn fetch(&mut self, by: InstanceId, page: u64, count: u16, access: Access) -> io::Result<()> {
        let began = Instant::now();
        if by == self.group.home() {
            let done = self.fetch_home(page, access);
            self.ledger.counts().pages.home.since(began);
            return done;
        }
        let mut gift = Gift::default();
        let mut next = page;
        if !self.directory.at_hand(by, page, access) {
            let plan = self.directory.fetch(by, page, access);
            match plan.from {
                None => gift.pieces.push(PageContent::AlreadyHeld),
                Some(from) => gift.add(&self.take(from, page, plan.keeps)?),
            }
            self.lose(plan.lose, page)?;
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
            gift.add(&self.store.surrender(run, access == Access::Read)?);
        }
        self.count(by, page, access, &gift.pieces, began);
        let Gift { pieces, body } = gift;
        let grant = PageGrant { group: self.group, page, write: access == Access::Write, pieces };
        // One that is lost tells so by itself.
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
        self.lose(plan.lose, page)?;
        match bytes {
            Some(bytes) => self.store.grant(page, &bytes, access)?,
            None => self.store.permit(page, access)?,
        }
        if fresh {
            let after = (1..FRESH).map(|ahead| page + ahead * PAGE_SIZE);
            for page in after.take_while(|&page| self.directory.at_home(page)) {
                if !self.store.fresh(page) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes a page from a holder, which may keep it to be read.
    fn take(&self, from: InstanceId, page: u64, keeps: bool) -> io::Result<Vec<u8>> {
        if from == self.group.home() {
            return self.store.surrender(page..page + PAGE_SIZE, keeps);
        }
        self.ledger.counts().pages.taken += 1;
        let question = PageRecall { group: self.group, page, keeps };
        let (answer, bytes) = self
            .layer
            .ask(from, &question, &[])
            .map_err(|error| io::Error::other(error.to_string()))?;
        match answer {
            Some(PageContent::Data) if bytes.len() as u64 == PAGE_SIZE => Ok(bytes),
            Some(PageContent::Zeros) => Ok(vec![0; PAGE_SIZE as usize]),
            _ => Err(io::Error::other(format!("{from} has it no more"))),
        }
    }

    fn lose(&self, holders: Vec<InstanceId>, page: u64) -> io::Result<()> {
        let range = page..page + PAGE_SIZE;
        holders.into_iter().try_for_each(|holder| self.drop_at(holder, vec![range.clone()]))
    }

    fn drop_at(&self, holder: InstanceId, ranges: Vec<Range<u64>>) -> io::Result<()> {
        if holder == self.group.home() {
            return self.store.discard(&ranges);
        }
        // One that is lost has it no more.
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
            // Whoever gathers may do without; the program cannot.
            self.fetch_home(page, Access::Write).inspect_err(|error| self.is_lost(page, error))?;
        }
        Ok(())
    }

    fn is_lost(&self, page: u64, error: &io::Error) {
        (self.failed)(&format!("the page at {page:#x} is lost: {error}"));
    }
}

/// Pages that are about to be granted.
#[derive(Default)]
struct Gift {
    pieces: Vec<PageContent>,
    body: Vec<u8>,
}

impl Gift {
    /// Whole pages, of which those of zeros are only told.
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
    /// A holder needs a page, and would like to have so many in all.
    pub(crate) fn fetch(&self, by: InstanceId, page: u64, count: u16, access: Access) {
        self.ask(PageHomeCommand::PageQuestion(PageQuestion {
            by,
            page,
            count,
            access,
            asked: Instant::now(),
        }));
    }

    /// What is at these addresses is not needed any more, wherever it is.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn discard(&self, ranges: Vec<Range<u64>>) -> io::Result<()> {
        let (done, told) = mpsc::channel();
        self.ask(PageHomeCommand::Discard(ranges, done));
        told.recv().map_err(|_| Errno::SRCH)?
    }

    /// Does `work` when all pages of a range are at the origin, and none goes anywhere meanwhile.
    ///
    /// # Errors
    /// A page is lost.
    pub(crate) fn gather<R>(&self, range: Range<u64>, work: impl FnOnce() -> R) -> io::Result<R> {
        let (done, told) = mpsc::channel();
        let (hold, over) = mpsc::channel::<()>();
        self.ask(PageHomeCommand::Gather(range, done, over));
        told.recv().map_err(|_| Errno::SRCH)??;
        let result = work();
        drop(hold);
        Ok(result)
    }

    /// A holder is no more; how many pages only it had.
    pub(crate) fn lost(&self, holder: InstanceId) -> usize {
        let (done, told) = mpsc::channel();
        self.ask(PageHomeCommand::Lost(holder, done));
        told.recv().unwrap_or_default()
    }

    /// Serves a mapping of frames that nobody can touch yet.
    ///
    /// # Errors
    /// It cannot be served.
    pub(crate) fn watch(&self, range: &Range<u64>) -> io::Result<()> {
        self.store.watch(range)
    }

    /// Ends it.
    pub(crate) fn close(&self) {
        self.ask(PageHomeCommand::End);
    }

    fn ask(&self, ask: PageHomeCommand) {
        // One that has ended drops what waits for an answer.
        let _ = self.asks.send(ask);
    }
}
