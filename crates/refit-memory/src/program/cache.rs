//! The cache of one region of anonymous memory, with one lock, or with one for each processor.
//!
//! The implementations differ in the number of locks and in the order in which pages are evicted.
//! Each group of [`GROUP`] pages has a single lock, so that neighbours can be brought in together.
//! Only tables change under a lock; the objects behind the cache are called without one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use super::budget::BudgetRef;
use super::fcm::{AnonymousCache, AnonymousPage, AnonymousStats, Before, GROUP, LendError, Place};
use super::lists::{Order, Rank};
use crate::PAGE_SIZE;
use crate::fcm::CacheError;
use crate::fr::FileRepresentativeRef;

/// The objects that a cache depends on.
#[derive(Clone, Copy, Debug)]
pub struct AnonymousParts {
    /// The budget that grants its frames.
    pub budget: BudgetRef,
    /// The representative of the pages that are out.
    pub fr: FileRepresentativeRef,
}

/// The state that one lock protects.
#[derive(Debug, Default)]
pub(super) struct Cell<O> {
    /// All pages that are not out. The program chooses the page numbers, but numbers that hash
    /// badly slow down only the program itself.
    here: FxHashMap<u64, Place>,
    /// The pages that are [`Place::In`], and no others.
    order: O,
    /// The pages that are [`Place::Doomed`], and no others. They are queried often, and usually
    /// there are none.
    doomed: BTreeSet<u64>,
    pub(super) stats: AnonymousStats,
}

/// The cache of a region.
#[derive(Debug)]
pub(super) struct Cache<O> {
    pub(super) name: &'static str,
    pub(super) parts: AnonymousParts,
    /// Padded, so that a thread that takes one lock takes no cache line of another's.
    pub(super) cells: Box<[CachePadded<Mutex<Cell<O>>>]>,
    /// The cell at which the next recall begins.
    turn: AtomicUsize,
}

impl<O: Order> Cell<O> {
    fn is(&self, page: u64, place: Place) -> bool {
        self.here.get(&page) == Some(&place)
    }

    /// Sets the place of a page. If that is `In`, the caller has to update the order too.
    fn set(&mut self, page: u64, place: Place) {
        let was = self.here.insert(page, place);
        if was == Some(Place::Doomed) {
            self.doomed.remove(&page);
        }
        if place == Place::Doomed {
            self.doomed.insert(page);
        }
    }

    /// Removes a page. Returns whether it had a frame.
    fn take_out(&mut self, page: u64, left: bool) -> bool {
        let was = self.here.remove(&page);
        self.doomed.remove(&page);
        self.order.gone(page, left);
        was.is_some()
    }

    /// Returns the pages of a range that are not out, in no particular order. A small range costs
    /// little, however many pages there are.
    fn inside(&self, range: &Range<u64>) -> Vec<u64> {
        if range.end.saturating_sub(range.start) < self.here.len() as u64 {
            range.clone().filter(|page| self.here.contains_key(page)).collect()
        } else {
            self.here.keys().copied().filter(|page| range.contains(page)).collect()
        }
    }

    /// Returns these pages as another implementation takes them over: those that can be evicted
    /// last, in the order of their queues.
    fn pages(&self, range: &Range<u64>) -> Vec<AnonymousPage> {
        let mut pages: Vec<_> =
            self.inside(range).into_iter().map(|page| (self.order.rank(page), page)).collect();
        pages.sort_unstable();
        let page = |(rank, page): (Option<Rank>, u64)| {
            let wanted = rank.is_some_and(|rank| rank.wanted);
            AnonymousPage { page, place: self.here[&page], wanted }
        };
        pages.into_iter().map(page).collect()
    }

    /// Returns the number of pages from `page` on that can be lent together, at most `most`: those
    /// that follow it have to be out.
    fn run(&self, page: u64, most: usize) -> usize {
        let out = |next: &u64| !self.here.contains_key(next);
        let end = (page / GROUP + 1) * GROUP;
        let end = end.min(page + most as u64);
        1 + (page + 1..end).take_while(out).count()
    }
}

impl<O: Order> Cache<O> {
    pub(super) fn new(name: &'static str, parts: AnonymousParts, cells: usize) -> Self {
        let cells = (0..cells).map(|_| CachePadded::new(Mutex::default())).collect();
        Self { name, parts, cells, turn: AtomicUsize::new(0) }
    }

    fn cell(&self, page: u64) -> MutexGuard<'_, Cell<O>> {
        Self::lock(&self.cells[(page / GROUP) as usize % self.cells.len()])
    }

    pub(super) fn lock(cell: &Mutex<Cell<O>>) -> MutexGuard<'_, Cell<O>> {
        // A panic here would leave a page in the wrong place, which its next fault would report.
        cell.lock()
    }

    fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Cell<O>>> {
        self.cells.iter().map(|cell| Self::lock(cell))
    }

    /// Splits pages into runs of consecutive ones that have the same lock.
    fn groups(pages: &[u64]) -> impl Iterator<Item = &[u64]> {
        pages.chunk_by(|one, next| one / GROUP == next / GROUP)
    }

    /// Returns all pages that are not out.
    pub(super) fn pages(&self) -> Vec<AnonymousPage> {
        self.all().flat_map(|cell| cell.pages(&(0..u64::MAX))).collect()
    }

    pub(super) fn put(&self, pages: Vec<AnonymousPage>) {
        for AnonymousPage { page, place, wanted } in pages {
            let mut cell = self.cell(page);
            cell.set(page, place);
            if place == Place::In {
                cell.order.resume(page, wanted);
            }
        }
    }

    /// Completes the landing of pages that were lent together.
    fn land(&self, pages: Range<u64>, how: LandOutcome) {
        if how != LandOutcome::Failed {
            // First, since no thread can evict the pages yet: the stored contents are those that
            // are in the program now.
            self.punch(&pages);
        }
        let mut frames = 0;
        let mut cell = self.cell(pages.start);
        for page in pages {
            let Some(&Place::Landing(before)) = cell.here.get(&page) else { continue };
            match (how, before) {
                (LandOutcome::Failed, Before::Out) => {
                    frames += u64::from(cell.take_out(page, false))
                }
                (LandOutcome::Failed, Before::In) => {
                    cell.set(page, Place::In);
                    cell.order.resume(page, false);
                }
                (LandOutcome::Failed | LandOutcome::Found, Before::Doomed) => {
                    cell.set(page, Place::Doomed)
                }
                (LandOutcome::Arrived, _) | (LandOutcome::Found, Before::Out | Before::In) => {
                    cell.set(page, Place::In);
                    cell.stats.returns += u64::from(cell.order.come(page));
                }
            }
        }
        drop(cell);
        if frames > 0 {
            self.parts.budget.give(frames);
        }
    }

    fn punch(&self, range: &Range<u64>) {
        let bytes = range.start * PAGE_SIZE as u64..range.end * PAGE_SIZE as u64;
        // The representative needs no disk for this, so nothing can fail.
        let _ = self.parts.fr.punch(bytes.start, bytes.end);
    }
}

/// The outcome of lending pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LandOutcome {
    /// They are in the program, with the contents that were lent.
    Arrived,
    /// They were in the program already, with the program's contents.
    Found,
    /// They could not be put into the program.
    Failed,
}

/// The rep of a cache.
#[derive(Debug)]
pub(super) struct Rep<O>(pub(super) Arc<Cache<O>>);

impl<O: Order> AnonymousCache for Rep<O> {
    fn lend(&self, page: u64, into: &mut [u8]) -> Result<usize, LendError> {
        let most = into.len() / PAGE_SIZE;
        let count = {
            let mut cell = self.0.cell(page);
            let before = match cell.here.get(&page) {
                Some(Place::Landing(_) | Place::Leaving) => return Err(LendError::Moving),
                Some(Place::In) => Before::In,
                Some(Place::Doomed) => Before::Doomed,
                None => Before::Out,
            };
            let count = if before == Before::Out {
                let wanted = cell.run(page, most);
                if O::YIELDS && cell.order.spare() > 0 {
                    let stats = self.0.parts.budget.stats();
                    if stats.free() < stats.reserve() / 4 {
                        return Err(LendError::NoFrame);
                    }
                }
                match self.0.parts.budget.take(wanted as u64) {
                    0 => return Err(LendError::NoFrame),
                    frames => frames as usize,
                }
            } else {
                // The page has its frame already.
                cell.order.gone(page, false);
                1
            };
            for page in page..page + count as u64 {
                cell.set(page, Place::Landing(before));
            }
            cell.stats.faults += 1;
            cell.stats.around += count as u64 - 1;
            count
        };
        let into = &mut into[..count * PAGE_SIZE];
        match self.0.parts.fr.read(page * PAGE_SIZE as u64, into) {
            Ok(read) => {
                into[read..].fill(0);
                Ok(count)
            }
            Err(errno) => {
                self.landed(page, count, false);
                Err(LendError::Host(errno))
            }
        }
    }

    fn landed(&self, page: u64, count: usize, arrived: bool) {
        let how = if arrived { LandOutcome::Arrived } else { LandOutcome::Failed };
        self.0.land(page..page + count as u64, how);
    }

    fn found(&self, page: u64) {
        self.0.land(page..page + 1, LandOutcome::Found);
    }

    fn adopt(&self, pages: &[u64]) -> usize {
        let mut done = 0;
        for group in Cache::<O>::groups(pages) {
            let mut cell = self.0.cell(group[0]);
            for &page in group {
                if !cell.here.contains_key(&page) {
                    if self.0.parts.budget.take(1) == 0 {
                        return done;
                    }
                    cell.set(page, Place::In);
                    cell.order.resume(page, false);
                }
                done += 1;
            }
        }
        done
    }

    fn recall(&self, most: usize) -> Vec<u64> {
        let mut chosen = Vec::with_capacity(most);
        for _ in 0..self.0.cells.len() {
            if chosen.len() == most {
                // The next recall begins with the cell behind this one.
                break;
            }
            let turn = self.0.turn.fetch_add(1, Relaxed) % self.0.cells.len();
            let mut cell = Cache::lock(&self.0.cells[turn]);
            while chosen.len() < most
                && let Some(page) = cell.order.next()
            {
                cell.set(page, Place::Leaving);
                chosen.push(page);
            }
        }
        chosen.sort_unstable();
        chosen
    }

    fn take_back(&self, pages: &[u64], bytes: &[u8]) -> Result<(), CacheError> {
        let leaving = |&at: &usize| self.0.cell(pages[at]).is(pages[at], Place::Leaving);
        let leaving: Vec<usize> = (0..pages.len()).filter(leaving).collect();
        let follow = |one: &usize, next: &usize| {
            one + 1 == *next && pages[*one].checked_add(1) == Some(pages[*next])
        };
        for run in leaving.chunk_by(follow) {
            let bytes = &bytes[run[0] * PAGE_SIZE..][..run.len() * PAGE_SIZE];
            let offset = pages[run[0]] * PAGE_SIZE as u64;
            self.0.parts.fr.write(offset, bytes).map_err(CacheError::Host)?;
        }
        self.left(pages);
        Ok(())
    }

    fn left(&self, pages: &[u64]) {
        let mut frames = 0;
        for group in Cache::<O>::groups(pages) {
            let mut cell = self.0.cell(group[0]);
            let before = frames;
            for &page in group {
                // Others were forgotten while they were leaving, and have given their frame back.
                if cell.is(page, Place::Leaving) {
                    frames += u64::from(cell.take_out(page, true));
                }
            }
            cell.stats.evictions += frames - before;
        }
        self.0.parts.budget.give(frames);
    }

    fn stay(&self, pages: &[u64]) {
        for &page in pages {
            let mut cell = self.0.cell(page);
            if cell.is(page, Place::Leaving) {
                cell.set(page, Place::In);
                cell.order.stayed(page);
            }
        }
    }

    fn forget(&self, start: u64, end: u64) {
        let range = start..end;
        for mut cell in self.0.all() {
            let pages = cell.inside(&range).into_iter();
            let frames = pages.filter(|&page| cell.take_out(page, false)).count();
            self.0.parts.budget.give(frames as u64);
        }
        self.0.punch(&range);
    }

    fn doom(&self, start: u64, end: u64) {
        let range = start..end;
        self.0.punch(&range);
        for mut cell in self.0.all() {
            for page in cell.inside(&range) {
                if cell.is(page, Place::In) {
                    cell.set(page, Place::Doomed);
                    cell.order.gone(page, false);
                }
            }
        }
    }

    fn doomed(&self) -> Vec<u64> {
        let mut all: Vec<u64> =
            self.0.all().flat_map(|cell| cell.doomed.iter().copied().collect::<Vec<_>>()).collect();
        all.sort_unstable();
        all
    }

    fn settle(&self, pages: &[u64], there: bool) {
        let mut frames = 0;
        for &page in pages {
            let mut cell = self.0.cell(page);
            if !cell.is(page, Place::Doomed) {
                continue;
            }
            if there {
                cell.set(page, Place::In);
                cell.order.resume(page, false);
            } else {
                frames += u64::from(cell.take_out(page, false));
            }
        }
        self.0.parts.budget.give(frames);
    }

    fn split_off(&self, start: u64, end: u64) -> Vec<AnonymousPage> {
        let range = start..end;
        let mut all = Vec::new();
        for mut cell in self.0.all() {
            let pages = cell.pages(&range);
            for one in &pages {
                cell.take_out(one.page, false);
            }
            all.extend(pages);
        }
        all
    }

    fn join(&self, pages: Vec<AnonymousPage>) {
        self.0.put(pages);
    }

    fn spare(&self) -> u64 {
        self.0.all().map(|cell| cell.order.spare() as u64).sum()
    }

    fn stats(&self) -> AnonymousStats {
        let of = |cell: MutexGuard<'_, Cell<O>>| AnonymousStats {
            resident: cell.here.len() as u64,
            ..cell.stats
        };
        self.0.all().map(of).sum()
    }
}
