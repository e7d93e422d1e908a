//! Serving the faults of one program (`serve.rs`, by the threads of `crew.rs`), and taking pages out of it (`evict.rs`).
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
//! They are taken in this order. Who waits for a frame, or for a page that is on its way, holds neither: it stands in `waiting`
//! ([`Waiting`]), and is tried again when the bell rings. Whoever empties the staging area holds neither, since that is a change of the program's,
//! too, which has to be heard before it ends.
//!
//! `MADV_DONTNEED` is told *before* the pages go: they are doomed, which keeps them from being evicted, until they are seen to be gone,
//! are asked for anew, or are there still when no thread of the program is throwing anything away (`MADV_FREE`).

mod crew;
mod evict;
mod serve;

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use refit_objects::{Interface, destroy};
use refit_sys::userfault::{CopyModes, Modes, Userfault};
use refit_sys::waiting::Waiting;
use rustix::event::{EventfdFlags, eventfd};

use super::hat::{Pages, StagingArea, TranslationInterface};
use super::part::Commons;
use super::region::FaultError;
use super::space::{ProcessInterface, ProcessRef, Recalled, Space, Which};
use crate::PAGE_SIZE;

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
    /// Returns what the child that a pager serves has of its parent's memory, before the child has run an instruction; `thread` is one
    /// of it, if one is known. `None`: all of it, since nobody can tell.
    fn inherited(&self, _pager: &Pager, _thread: Option<u32>) -> Option<Vec<Inherited>> {
        None
    }
}

/// Memory that a child has from its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Its addresses.
    pub range: Range<u64>,
    /// The child finds zeros there (`MADV_WIPEONFORK`).
    pub wiped: bool,
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
    /// Faults that wait for something other than a look at the tables.
    waiting: Waiting<u64>,
    /// Wakes who sleeps; who is awake looks at `waiting`.
    bell: OwnedFd,
    ended: AtomicBool,
    /// One batch at a time: there is one staging area.
    batch: Mutex<()>,
    children: AtomicU64,
    lost: AtomicU64,
    /// The program is a child, and of its parent's pages that are out it is not known yet which it has.
    inherits: AtomicBool,
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
            waiting: Waiting::default(),
            bell,
            ended: AtomicBool::new(false),
            batch: Mutex::default(),
            children: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            inherits: AtomicBool::new(false),
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

    /// Whether it is still to be told what the child that it serves has of its parent's memory ([`inherit`](Self::inherit)).
    pub fn inherits(&self) -> bool {
        // Pairs with the store in `inherit_now`: whoever finds it settled finds the tables so.
        self.inherits.load(Ordering::Acquire)
    }

    /// The child that it serves has this of its parent's memory, which includes all that is registered. Before the child has run an
    /// instruction; the first caller counts.
    pub fn inherit(&self, inherited: &[Inherited]) {
        let _changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        self.inherit_now(inherited);
    }

    /// Asks whoever knows the processes what the child has, if it is still to be told; `thread` is
    /// one of the child's that waits for a page. Whether that is known now.
    pub fn find_inherited(&self, thread: Option<u32>) -> bool {
        if self.inherits()
            && let Some(inherited) = self.outside.inherited(self, thread)
        {
            self.inherit(&inherited);
        }
        !self.inherits()
    }

    /// As [`inherit`](Self::inherit), for whoever holds `changes`.
    fn inherit_now(&self, inherited: &[Inherited]) {
        if self.inherits() {
            self.space.inherit(inherited);
            self.inherits.store(false, Ordering::Release);
        }
    }

    /// Whether pages can be taken out of the program.
    pub fn moored(&self) -> bool {
        self.pages.moored()
    }

    /// Pages can be taken out of the program from now on. The staging area's place is registered here, and so are `marks`: pages that
    /// the program does not touch, and its children inherit ([`mark`](Self::mark)).
    ///
    /// # Errors
    /// The kernel refuses to serve them.
    pub fn attach_staging_area(
        &self,
        staging_area: StagingArea,
        marks: &Range<u64>,
    ) -> io::Result<()> {
        self.userfault.register(staging_area.place.clone(), Modes::MISSING)?;
        self.userfault.register(marks.clone(), Modes::MISSING)?;
        self.pages.attach_staging_area(staging_area);
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
    /// ([`adopt`](Self::adopt)). It may have grown since it was looked at, up to `room`, where something else begins: one mapping of
    /// which a part is served, the kernel does not let a program move.
    ///
    /// # Errors
    /// The range is not mapped any more, or of memory of which no faults can be served.
    pub fn manage(&self, range: &Range<u64>, room: u64, name: &str) -> io::Result<()> {
        let _reading = lock(&self.reading);
        let register = |range| self.userfault.register(range, Modes::MISSING);
        // Something that cannot be served may have been mapped there meanwhile.
        register(range.start..room).or_else(|_| register(range.clone()))?;
        self.space.map(range, name);
        Ok(())
    }

    /// Pages that are in the program are counted from now on, `addresses` of whole pages; how many could be, before frames ran out.
    pub fn adopt(&self, addresses: &[u64]) -> usize {
        let _changes = self.unchanged();
        self.space.adopt(addresses)
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

    /// Gives all pages back that are out, and serves nothing any more: the kernel resolves the program's faults. Frames have to be allowed
    /// for them before. Whether all could be.
    pub fn release(&self) -> bool {
        self.give_back(Which::All)
    }

    /// As [`release`](Self::release), of regions that are not to be served (`native`), as far as there are frames for what is out.
    pub fn leave_to_kernel(&self) -> bool {
        !self.space.decide() || self.give_back(Which::Leaving)
    }

    fn give_back(&self, which: Which) -> bool {
        // Nobody evicts meanwhile, and nothing is dismissed.
        let _batch = lock(&self.batch);
        loop {
            if self.ended.load(Ordering::Acquire) {
                return true;
            }
            let (out, mut passes) = (self.space.out(which), false);
            for &address in &out {
                // Else a change could have been read and not been acted upon: what was thrown away would come back.
                let _reading = lock(&self.reading);
                match self.attempt(address) {
                    Err(FaultError::NoFrame) => return false,
                    Err(_) => passes = true,
                    Ok(()) => {}
                }
            }
            if passes {
                // For the threads that serve, which hear of changes.
                refit_sys::thread::give_way();
                continue;
            }
            let _reading = lock(&self.reading);
            // Nobody is to be on the way of a fault through objects that end.
            let _changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
            match self.space.out(which) {
                left if left.is_empty() => {}
                // They are lost.
                left if left == out => return false,
                _ => continue,
            }
            for range in self.space.ranges(which) {
                // What is not mapped any more is not served either.
                let _ = self.userfault.unregister(range);
            }
            match which {
                Which::All => self.space.end(),
                _ => self.space.leave_to_kernel(),
            }
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
        if self.waiting.ring() {
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
