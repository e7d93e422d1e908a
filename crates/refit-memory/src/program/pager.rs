//! Serving the faults of one program (`serve.rs`, by the threads of `servers.rs`), and evicting its
//! pages (`evict.rs`).
//!
//! ```text
//!   program ── fault ──► serve: read, then Process → Region → FCM → (budget, FR) → HAT ──► program
//!                          ▲ wakeup                                   │ no frame
//!                          └──────────── evict: FCM ─► HAT ─► FR ◄────┘
//! ```
//!
//! ## Locks, in the order in which they are taken
//!
//! | lock | protects |
//! |---|---|
//! | `batch` | the staging area, over one batch of evictions |
//! | `reading` | the order in which messages of the program are read and changes are handled |
//! | `changes` | the agreement of the tables with the program's mappings |
//! | `places` of the [`Space`] | the table of regions; caches are called with it held |
//! | a lock of a cache, the store's | see there; no lock above is taken with one held |
//!
//! `waiting` has a lock of its own; nothing is called with it held.
//!
//! ## Why no page is lost, and no discarded page returns
//!
//! The program may change its mappings at any time, and the kernel reports each change by a
//! message. Two of the locks order the pager's actions relative to these changes:
//!
//! * `reading` is held by a thread that reads messages, until it has handled those that report
//!   changes; and by a thread that evicts, while it moves pages out. The kernel refuses to move
//!   pages (`EAGAIN`) from the beginning of a change until its message is read. So a page that has
//!   been moved is the page that the tables describe: no change lies between.
//! * `changes` is held exclusively while a change is handled, and while pages are stored that the
//!   store has not accepted before; shared by a thread that resolves a fault, from its lookup in
//!   the tables until the page is in the program; and shared by a thread that evicts, from before
//!   pages are moved until the tables say where they are. So no thread acts on tables that change
//!   in the meantime, and no page is in transit when addresses change.
//!
//! No thread holds these locks for a fault that waits for a frame, or for a page in transit: the
//! pager keeps the fault in `waiting` ([`Waiting`]), and tries it again after [`Pager::ring`]. A
//! thread that empties the staging area holds neither lock, since this too changes the program's
//! mappings: the call returns only after its message has been read.
//!
//! The kernel reports `MADV_DONTNEED` *before* it discards the pages. Such pages are *doomed*: they
//! are not evicted until they are found to be gone, are faulted in again, or still exist when no
//! thread of the program is discarding anything (`MADV_FREE`).

mod evict;
mod serve;
mod servers;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use refit_objects::{Interface, destroy};
use refit_sys::userfault::{CopyModes, Modes, Userfault};
use refit_sys::waiting::Waiting;
use rustix::event::{EventfdFlags, eventfd};

use super::hat::{Pages, StagingArea, TranslationInterface};
use super::part::Commons;
use super::region::FaultError;
use super::space::{Inherited, ProcessInterface, ProcessRef, RecallBatch, Space, Which};
use crate::PAGE_SIZE;
use crate::throttle::Throttle;

/// The callbacks by which a pager informs its creator.
pub trait Outside: Send + Sync {
    /// Frames are short: pages have to be evicted.
    fn short(&self);
    /// Returns addresses whose pages must stay, because the kernel writes there for threads that
    /// cannot wait, as they end.
    fn needed(&self, _pager: &Pager) -> Vec<u64> {
        Vec::new()
    }
    /// The program has forked: `child` is the pager that serves the child.
    fn forked(&self, parent: &Pager, child: Arc<Pager>);
    /// Returns the memory that the child served by this pager has inherited from its parent, before
    /// the child has run an instruction. `thread` is a thread of the child, if one is known. `None`
    /// means that this is not known; the pager then keeps all of the parent's memory for the child.
    fn inherited(&self, _pager: &Pager, _thread: Option<u32>) -> Option<Vec<Inherited>> {
        None
    }
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
    /// Faults that cannot be resolved by a lookup in the tables now.
    waiting: Waiting<u64>,
    /// An eventfd that wakes a sleeping thread; a thread that is awake looks at `waiting`.
    wakeup: OwnedFd,
    ended: AtomicBool,
    /// Held over one batch of evictions, since there is one staging area.
    batch: Mutex<()>,
    children: AtomicU64,
    lost: AtomicU64,
    /// Whether the program is a child, and it is not yet known which pages it has inherited of
    /// those that were out of its parent.
    inherits: AtomicBool,
    out_of_frames: Throttle,
    nothing_evicted: Throttle,
}

impl Pager {
    /// Creates the pager of a program whose faults this userfaultfd reports. It serves no range
    /// yet.
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
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            process: space.process(),
            space,
            userfault,
            pages,
            outside,
            reading: Mutex::default(),
            changes: RwLock::default(),
            waiting: Waiting::default(),
            wakeup,
            ended: AtomicBool::new(false),
            batch: Mutex::default(),
            children: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            inherits: AtomicBool::new(false),
            out_of_frames: Throttle::new(),
            nothing_evicted: Throttle::new(),
        }))
    }

    /// Returns the program's address space.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Returns the number of pages that are lost, because the store could not return them. Threads
    /// that have accessed them received `SIGBUS`.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns whether the program is a child whose inherited memory is not known yet
    /// ([`inherit`](Self::inherit)).
    pub fn inherits(&self) -> bool {
        // Pairs with the store in `inherit_now`: a thread that finds it settled also finds the
        // tables so.
        self.inherits.load(Ordering::Acquire)
    }

    /// Sets the memory that the served child has inherited from its parent. `inherited` must
    /// contain all mappings of the child that are registered with the userfaultfd; pages elsewhere
    /// are dropped. Has to be called before the child has run an instruction; only the first call
    /// has an effect.
    pub fn inherit(&self, inherited: &[Inherited]) {
        let _changes = self.changes.write();
        self.inherit_now(inherited);
    }

    /// Asks the creator which memory the child has, if that is not known yet; `thread` is a thread
    /// of the child that waits for a page. Returns whether it is known now.
    pub fn find_inherited(&self, thread: Option<u32>) -> bool {
        if self.inherits()
            && let Some(inherited) = self.outside.inherited(self, thread)
        {
            self.inherit(&inherited);
        }
        !self.inherits()
    }

    /// As [`inherit`](Self::inherit), for a caller that holds `changes`.
    fn inherit_now(&self, inherited: &[Inherited]) {
        if self.inherits() {
            self.space.inherit(inherited);
            self.inherits.store(false, Ordering::Release);
        }
    }

    /// Returns whether pages can be taken out of the program.
    pub fn can_evict(&self) -> bool {
        self.pages.can_evict()
    }

    /// Attaches the staging area, so that pages can be taken out of the program from now on.
    /// Registers its pages, and also `marks`: pages that the program does not access and its
    /// children inherit ([`mark`](Self::mark)).
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

    /// Puts a page into the program if there is none at `address`. A caller that finds the page in
    /// the memory of a process knows that this pager serves it.
    ///
    /// # Errors
    /// That of the kernel: `EAGAIN` while the memory changes, `EEXIST` if there is a page.
    pub fn mark(&self, address: u64, page: &[u8; PAGE_SIZE]) -> io::Result<()> {
        self.userfault.copy(address, page, CopyModes::empty()).map_err(|short| short.error)
    }

    /// Returns the program's userfaultfd.
    pub fn userfault(&self) -> &Arc<Userfault> {
        &self.userfault
    }

    /// Returns whether the memory that it serves still exists; `place` is a registered range.
    pub fn alive(&self, place: &Range<u64>) -> bool {
        let registered = self.userfault.register(place.clone(), Modes::MISSING);
        let errno = registered.err().and_then(|error| error.raw_os_error());
        errno.is_none_or(|errno| ![libc::ESRCH, libc::ENOMEM].contains(&errno))
    }

    /// Serves the faults of a range of the program's private memory from now on. Pages that are in
    /// already are not counted yet ([`adopt`](Self::adopt)). The mapping may have grown since it
    /// was examined, up to `room`, where another one begins. It is then served as a whole, because
    /// the kernel does not let a program move a mapping of which only a part is served.
    ///
    /// # Errors
    /// The range is not mapped any more, or is memory whose faults cannot be served.
    pub fn manage(&self, range: &Range<u64>, room: u64, name: &str) -> io::Result<()> {
        let _reading = self.reading.lock();
        let register = |range| self.userfault.register(range, Modes::MISSING);
        // Memory that cannot be served may have been mapped behind it in the meantime.
        register(range.start..room).or_else(|_| register(range.clone()))?;
        self.space.map(range, name);
        Ok(())
    }

    /// Counts pages that are in the program from now on; `addresses` are those of whole pages.
    /// Returns how many could be counted before frames ran out.
    pub fn adopt(&self, addresses: &[u64]) -> usize {
        let _changes = self.unchanged();
        self.space.adopt(addresses)
    }

    /// Ends serving. Threads that wait for a page get none: the program has ended, or has executed
    /// another one.
    pub fn end(&self) {
        // Pairs with the loads in the loops of `lead` and `help`.
        self.ended.store(true, Ordering::Release);
        self.pages.detach_staging_area();
        self.ring();
    }

    /// Gives back all that the program had. Called after `serve` has returned.
    pub fn dismiss(&self) {
        let _batch = self.batch.lock();
        // No thread may be calling caches that are about to end; a thread that calls them holds
        // `changes` shared.
        let _changes = self.changes.write();
        self.space.end();
        destroy(ProcessInterface::id(self.process));
        destroy(TranslationInterface::id(self.space.hat()));
    }

    /// Returns all pages that are out to the program, and stops serving: the kernel resolves the
    /// program's faults. The budget has to allow frames for them before. Returns whether all pages
    /// could be returned.
    pub fn release(&self) -> bool {
        self.give_back(Which::All)
    }

    /// As [`release`](Self::release), for regions that should not be served (`native`), as far as
    /// there are frames for their pages that are out.
    pub fn leave_to_kernel(&self) -> bool {
        !self.space.decide() || self.give_back(Which::Leaving)
    }

    fn give_back(&self, which: Which) -> bool {
        // No eviction may run in the meantime, and no `dismiss`.
        let _batch = self.batch.lock();
        loop {
            if self.ended.load(Ordering::Acquire) {
                return true;
            }
            let (out, mut passes) = (self.space.out(which), false);
            for &address in &out {
                // Without this lock a change could have been read but not handled yet, and
                // discarded pages would return.
                let _reading = self.reading.lock();
                match self.attempt(address) {
                    Err(FaultError::NoFrame) => return false,
                    Err(_) => passes = true,
                    Ok(()) => {}
                }
            }
            if passes {
                // Gives way to the threads that serve, which read changes.
                refit_sys::thread::give_way();
                continue;
            }
            let _reading = self.reading.lock();
            // No fault may be on its way through objects that are about to end.
            let _changes = self.changes.write();
            match self.space.out(which) {
                left if left.is_empty() => {}
                // The remaining pages are lost.
                left if left == out => return false,
                _ => continue,
            }
            for range in self.space.ranges(which) {
                // A range that is not mapped any more is not served either.
                let _ = self.userfault.unregister(range);
            }
            match which {
                Which::All => self.space.end(),
                _ => self.space.leave_to_kernel(),
            }
            return true;
        }
    }

    /// Decides about the doomed pages. `there` returns which addresses are still in the program;
    /// `quiet` returns whether no thread is discarding anything. A page that is in although no
    /// thread is discarding anything stays: it was not discarded (`MADV_FREE`), or has been faulted
    /// in since.
    pub fn settle(&self, there: impl Fn(&[u64]) -> Vec<bool>, quiet: impl Fn() -> bool) {
        // No further discarding is read before this ends.
        let _changes = self.unchanged();
        let mut ended = None;
        for RecallBatch { fcm, pages, addresses, .. } in self.space.doomed() {
            // First: a page that is in when no thread is discarding anything has not been
            // discarded.
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

    /// Makes the threads that serve try waiting faults again.
    pub fn ring(&self) {
        if self.waiting.ring() {
            // It fails only if the counter is at its maximum, which wakes as well.
            let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }

    fn unchanged(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read()
    }
}
