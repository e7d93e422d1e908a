//! Serving the faults of one program, and taking pages out of it.
//!
//! ```text
//!   program ── fault ──► serve: hear, then Process → Region → FCM → (budget, FR) → HAT ──► program
//!                          ▲ bell                                     │ no frame
//!                          └──────────── evict: FCM ─► HAT ─► FR ◄────┘
//! ```
//!
//! ## Why no page is lost, and none comes back that is gone
//!
//! The program changes its mappings whenever it likes, and tells of it by messages. Two locks order what is done here with what it says:
//!
//! * `reading` is held while messages are read, until those that tell of changes have been acted upon; and by who evicts, while pages
//!   are being moved out. The kernel moves no page (`EAGAIN`) from the moment on that a change begins until its message is read.
//!   So a page that has been moved is what the tables say: no change lies between.
//! * `changes` is held exclusively while a change is acted upon; shared by who resolves a fault, from its look at the tables until the
//!   page is in the program; and shared by who evicts, from before pages are moved until the tables say where they are. So nobody
//!   acts upon tables that are changed meanwhile, and no page is under way when addresses change.
//!
//! They are taken in this order. Who waits for a frame, or for a page that is on its way, holds neither: it stands in `waiting`, and is
//! tried again when the bell rings. Whoever empties the berth holds neither, since that is a change of the program's,
//! too, which has to be heard before it ends.
//!
//! `MADV_DONTNEED` is told *before* the pages go: they are doomed, which keeps them from being evicted, until they are seen to be gone,
//! are asked for anew, or are there still when no thread of the program is throwing anything away (`MADV_FREE`).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use refit_objects::{Interface, destroy};
use refit_sys::linger::Linger;
use refit_sys::placement;
use refit_sys::userfault::{CopyModes, Message, Modes, Userfault};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::hat::{BERTH, Berth, Pages, Taken, TranslationInterface};
use super::region::FaultError;
use super::space::{Commons, ProcessInterface, ProcessRef, Recalled, Space};
use crate::PAGE_SIZE;
use crate::events;

/// Nanoseconds until a fault is tried again that met a change which has been heard, but not ended yet.
const SOON: i64 = 50_000;

/// What a pager tells to whoever has made it.
pub trait Outside: Send + Sync {
    /// Frames are short: have pages evicted.
    fn short(&self);
    /// Addresses whose pages must stay: the kernel writes there for threads that cannot wait, as they end.
    fn needed(&self, _pager: &Pager) -> Vec<u64> {
        Vec::new()
    }
    /// The program has forked: this pager is to serve the child.
    fn forked(&self, parent: &Pager, child: Arc<Pager>);
}

/// What has come in and has not been seen to yet.
#[derive(Default)]
struct News {
    messages: Vec<Message>,
    /// Where threads wait, and one that does.
    faults: Vec<u64>,
    thread: Option<u32>,
    /// The program is, or its memory.
    gone: bool,
}

/// The pager of one program.
pub struct Pager {
    space: Arc<Space>,
    process: ProcessRef,
    userfault: Arc<Userfault>,
    pages: Arc<Pages>,
    outside: Arc<dyn Outside>,
    reading: Mutex<()>,
    changes: RwLock<()>,
    /// Addresses at which threads wait for something other than a look at the tables.
    waiting: Mutex<Vec<u64>>,
    /// Wakes who sleeps; who is awake looks at `rung`.
    bell: OwnedFd,
    rung: AtomicBool,
    ended: AtomicBool,
    /// One batch at a time: there is one berth.
    batch: Mutex<()>,
    children: AtomicU64,
    lost: AtomicU64,
}

impl Pager {
    /// A pager of a program whose faults this userfaultfd tells. It serves nothing yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(
        name: &str,
        userfault: Arc<Userfault>,
        commons: Arc<Commons>,
        outside: Arc<dyn Outside>,
    ) -> io::Result<Arc<Self>> {
        let pages = Pages::new(Arc::clone(&userfault));
        let space = Space::new(name, pages.create(name), commons);
        Self::of(space, userfault, pages, outside)
    }

    fn of(
        space: Arc<Space>,
        userfault: Arc<Userfault>,
        pages: Arc<Pages>,
        outside: Arc<dyn Outside>,
    ) -> io::Result<Arc<Self>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            process: space.process(),
            space,
            userfault,
            pages,
            outside,
            reading: Mutex::default(),
            changes: RwLock::default(),
            waiting: Mutex::default(),
            bell,
            rung: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            batch: Mutex::default(),
            children: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }))
    }

    /// Its address space.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Pages that are lost: the store could not give them back. Who has touched them was told (`SIGBUS`).
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether pages can be taken out of the program.
    pub fn moored(&self) -> bool {
        self.pages.moored()
    }

    /// Pages can be taken out of the program from now on. The berth's place is registered here, and so are `marks`: pages that
    /// the program does not touch, and its children inherit ([`mark`](Self::mark)).
    ///
    /// # Errors
    /// The kernel refuses to serve them.
    pub fn moor(&self, berth: Berth, marks: &Range<u64>) -> io::Result<()> {
        self.userfault.register(berth.place.clone(), Modes::MISSING)?;
        self.userfault.register(marks.clone(), Modes::MISSING)?;
        self.pages.moor(berth);
        Ok(())
    }

    /// Puts a page into the program, if there is none at `address`: who finds it there knows whose pager this is.
    pub fn mark(&self, address: u64, page: &[u8; PAGE_SIZE]) {
        // Where it cannot be put, nobody finds it.
        let _ = self.userfault.copy(address, page, CopyModes::empty());
    }

    /// Its userfaultfd.
    pub fn userfault(&self) -> &Arc<Userfault> {
        &self.userfault
    }

    /// Whether the memory that it serves is anybody's still; `place` is registered.
    pub fn alive(&self, place: &Range<u64>) -> bool {
        let gone = [libc::ESRCH, libc::ENOMEM];
        let asked = self.userfault.register(place.clone(), Modes::MISSING);
        asked
            .err()
            .and_then(|error| error.raw_os_error())
            .is_none_or(|errno| !gone.contains(&errno))
    }

    /// Serves the faults of a range from now on: memory of the program's alone. What is there already is not counted yet
    /// ([`adopt`](Self::adopt)).
    ///
    /// # Errors
    /// The range is not mapped any more, or of memory of which no faults can be served.
    pub fn manage(&self, range: &Range<u64>, name: &str) -> io::Result<()> {
        let _reading = lock(&self.reading);
        self.userfault.register(range.clone(), Modes::MISSING)?;
        self.space.map(range, name);
        Ok(())
    }

    /// Pages that are in the program are counted from now on, `addresses` of whole pages; how many could be, before frames ran out.
    pub fn adopt(&self, addresses: &[u64]) -> usize {
        let _changes = self.unchanged();
        self.space.adopt(addresses)
    }

    /// Serves until the program has ended or [`end`](Self::end) is called.
    pub fn serve(&self) {
        refit_sys::thread::go_before_others();
        let linger = Linger::default();
        let mut news = News::default();
        let mut soon = false;
        // Pairs with `end`.
        while !self.ended.load(Ordering::Acquire) {
            if !linger.wait_for(|| self.look(&mut news)) {
                self.sleep(soon);
                self.look(&mut news);
            }
            if news.gone {
                break;
            }
            if let Some(thread) = news.thread.take() {
                placement::follow(thread);
            }
            news.faults.append(&mut lock(&self.waiting));
            soon = false;
            for address in news.faults.drain(..) {
                soon |= self.resolve(address);
            }
            self.foresee();
        }
    }

    /// Takes what has come in; whether anything has.
    fn look(&self, news: &mut News) -> bool {
        // Pairs with `ring`.
        let rung = self.rung.swap(false, Ordering::AcqRel);
        let heard = self.hear(news).unwrap_or_else(|_| {
            news.gone = true;
            true
        });
        rung || heard
    }

    /// Sleeps until there is something to look at; `soon`: for a moment at most.
    fn sleep(&self, soon: bool) {
        let limit = soon.then_some(rustix::time::Timespec { tv_sec: 0, tv_nsec: SOON });
        let mut asked = [
            PollFd::from_borrowed_fd(self.userfault.as_fd(), PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        // A signal is as good as a ring.
        let _ = poll(&mut asked, limit.as_ref());
        if asked[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Ends serving. Who waits for a page is not helped any more: the program has ended, or is another.
    pub fn end(&self) {
        // Pairs with the loop of `serve`.
        self.ended.store(true, Ordering::Release);
        self.pages.cast_off();
        self.ring();
    }

    /// After `serve` has returned: gives back what the program had.
    pub fn dismiss(&self) {
        let _batch = lock(&self.batch);
        // Nobody is to be asking caches that end: who does is not to see changes.
        let _changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        self.space.end();
        destroy(ProcessInterface::id(self.process));
        destroy(TranslationInterface::id(self.space.hat()));
    }

    /// Has pages evicted before the last frame is gone.
    fn foresee(&self) {
        let stats = self.space.commons().budget.stats();
        if stats.free() < stats.reserve() / 2 {
            self.outside.short();
        }
    }

    /// Reads what has happened, and acts on what changes mappings; whether anything has. Faults are added to `news`.
    fn hear(&self, news: &mut News) -> io::Result<bool> {
        let _reading = lock(&self.reading);
        match self.userfault.read(&mut news.messages) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let is_fault = |message: &Message| matches!(message, Message::Pagefault { .. });
        let any = !news.messages.is_empty();
        let changes = !news.messages.iter().all(is_fault);
        let _changes =
            changes.then(|| self.changes.write().unwrap_or_else(PoisonError::into_inner));
        for message in news.messages.drain(..) {
            match message {
                Message::Pagefault { address, thread, .. } => {
                    news.faults.push(address);
                    news.thread = thread;
                }
                Message::Unmap(range) => self.space.unmap(&range),
                Message::Remove(range) => self.space.remove(&range),
                Message::Remap { from, to, length } => {
                    self.space.remap(&(from..from + length), to);
                }
                Message::Fork(child) => self.fork(child)?,
                Message::Other(_) => {}
            }
        }
        Ok(any)
    }

    fn fork(&self, child: Userfault) -> io::Result<()> {
        let number = self.children.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{}.{number}", self.space.name());
        let userfault = Arc::new(child);
        let pages = Pages::new(Arc::clone(&userfault));
        let hat = pages.create(name.as_str());
        let space = self.space.fork(name, hat);
        let child = Self::of(space, userfault, pages, Arc::clone(&self.outside))?;
        self.outside.forked(self, child);
        Ok(())
    }

    /// Resolves a fault, or has it wait; whether it is to be tried again soon, whoever rings.
    fn resolve(&self, address: u64) -> bool {
        let _fault = events::PROGRAM_FAULT.span([address, 0]);
        let changes = self.unchanged();
        let mut outcome = self.process.fault(address);
        if outcome == Err(FaultError::Unknown) {
            self.space.grow(address);
            outcome = self.process.fault(address);
        }
        match outcome {
            Ok(()) => return false,
            Err(FaultError::Unknown | FaultError::Unmapped) => self.space.hat().wake(address),
            Err(FaultError::Lost(_)) => {
                if !self.space.hat().poison(address) {
                    lock(&self.waiting).push(address);
                    return true;
                }
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(FaultError::Gone) => self.ended.store(true, Ordering::Release),
            Err(why @ (FaultError::NoFrame | FaultError::Moving | FaultError::Changing)) => {
                lock(&self.waiting).push(address);
                drop(changes);
                if why == FaultError::NoFrame {
                    self.outside.short();
                }
                return why != FaultError::NoFrame;
            }
        }
        false
    }

    /// Takes up to `most` pages out of the program, in one batch; how many have gone.
    ///
    /// # Errors
    /// The store does not take them: they are in memory here, beyond any limit, as those of one batch can be.
    pub fn evict(&self, most: usize) -> Result<usize, crate::CacheError> {
        let _evict = events::PROGRAM_EVICT.span([most as u64, 0]);
        let _batch = lock(&self.batch);
        if !self.moored() || self.ended.load(Ordering::Acquire) {
            return Ok(0);
        }
        let hat = self.space.hat();
        let reading = lock(&self.reading);
        let changes = self.unchanged();
        let Some(mut recalled) = self.space.recall(most.min(BERTH)) else { return Ok(0) };
        recalled.keep(&self.outside.needed(self));
        if recalled.pages.is_empty() {
            return Ok(0);
        }
        let mut taken = hat.take(&recalled.addresses);
        drop(reading);
        let result = self.put_away(&recalled, &mut taken);
        drop(changes);
        self.ring();
        let which = |what: Taken| {
            let pages = recalled.addresses.iter().zip(&taken);
            pages.filter(move |(_, taken)| **taken == what).map(|(&address, _)| address)
        };
        if which(Taken::Gone).next().is_some() {
            hat.clear();
        }
        let shared: Vec<u64> = which(Taken::Shared).collect();
        if !shared.is_empty() {
            hat.own(&shared);
        }
        result
    }

    /// Pages in the berth go to the store; the others stay. `taken` is what they are held for, and then what has become of them: where
    /// they stand decides.
    fn put_away(
        &self,
        recalled: &Recalled,
        taken: &mut [Taken],
    ) -> Result<usize, crate::CacheError> {
        let Recalled { fcm, pages, addresses, .. } = recalled;
        let hat = self.space.hat();
        let mut bytes = vec![0; pages.len() * PAGE_SIZE];
        let Some(there) = hat.fetch(&mut bytes) else {
            fcm.stay(pages);
            return Ok(0);
        };
        let mut gone = Vec::with_capacity(pages.len());
        let mut stay = Vec::new();
        for (at, &page) in pages.iter().enumerate() {
            if there[at] {
                taken[at] = Taken::Gone;
                let to = gone.len() * PAGE_SIZE;
                bytes.copy_within(at * PAGE_SIZE..(at + 1) * PAGE_SIZE, to);
                gone.push(at);
                continue;
            }
            if taken[at] == Taken::Gone {
                // It is in neither place: an error for who touches it, rather than zeros.
                self.lost.fetch_add(1, Ordering::Relaxed);
                // Whoever changes mappings now goes on as soon as that has been read, which needs nothing that is held here.
                while !hat.poison(addresses[at]) {
                    refit_sys::thread::give_way();
                }
            }
            stay.push(page);
        }
        bytes.truncate(gone.len() * PAGE_SIZE);
        fcm.stay(&stay);
        let numbers: Vec<u64> = gone.iter().map(|&at| pages[at]).collect();
        fcm.take_back(&numbers, &bytes).inspect_err(|_| {
            // They have left, and nothing can be put in before the program's changes have been heard: they stay here.
            for (&number, page) in numbers.iter().zip(bytes.as_chunks().0) {
                recalled.behind.keep(number, page);
            }
            fcm.left(&numbers);
        })?;
        Ok(numbers.len())
    }

    /// Gives all pages back that are out, and serves nothing any more: the kernel resolves the program's faults. Frames have to be allowed
    /// for them before. Whether all could be.
    pub fn release(&self) -> bool {
        // Nobody evicts meanwhile, and nothing is dismissed.
        let _batch = lock(&self.batch);
        loop {
            if self.ended.load(Ordering::Acquire) {
                return true;
            }
            let out = self.space.out();
            for &address in &out {
                // Else a change could have been read and not been acted upon: what was thrown away would come back.
                let _reading = lock(&self.reading);
                self.resolve(address);
            }
            let _reading = lock(&self.reading);
            // Nobody is to be on the way of a fault through objects that end.
            let _changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
            match self.space.out() {
                left if left.is_empty() => {}
                // Something is wrong with them, or with the frames.
                left if left == out => return false,
                _ => continue,
            }
            for range in self.space.ranges() {
                // What is not mapped any more is not served either.
                let _ = self.userfault.unregister(range);
            }
            self.space.end();
            return true;
        }
    }

    /// Looks after pages that the program has thrown away: `there` tells which of these addresses are still in it; `quiet`, whether none
    /// of its threads is throwing anything away. Pages that are there even so stay (`MADV_FREE`), or have come since.
    pub fn settle(&self, there: impl Fn(&[u64]) -> Vec<bool>, quiet: impl Fn() -> bool) {
        // What is thrown away from now on is not heard of before this ends.
        let _changes = self.unchanged();
        let mut ended = None;
        for Recalled { fcm, pages, addresses, .. } in self.space.doomed() {
            // First: what is there when nobody throws anything away has not been.
            let ended = *ended.get_or_insert_with(&quiet);
            let there = there(&addresses);
            let which = |wanted: bool| {
                let pages = pages.iter().zip(&there).filter(move |(_, there)| **there == wanted);
                pages.map(|(&page, _)| page).collect::<Vec<_>>()
            };
            fcm.settle(&which(false), false);
            if ended {
                fcm.settle(&which(true), true);
            }
        }
    }

    /// Has faults that wait tried again.
    pub fn ring(&self) {
        // Pairs with `look`: who has seen it sees what there is to be had.
        if !self.rung.swap(true, Ordering::AcqRel) {
            // It can only be full of rings.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    fn unchanged(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What they protect is whole at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
