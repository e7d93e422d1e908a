//! An address space: the regions of a program that are served, and their ranges (Hui 2000, §3.2:
//! Process, Region).
//!
//! The path of a fault goes through objects, [`Process`] first. Changes of the program's mappings
//! are reported here. A region has its own cache and representative. If a part of it is moved
//! elsewhere, that part becomes another region; so every page is in one cache, and no two caches
//! share anything.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use refit_objects::{Choices, State, TransferError};
use refit_sys::memory::PAGE_SIZE_U64;
use rustc_hash::FxHashMap;

use super::budget::Draws;
use super::fcm::{AnonymousCacheRef, AnonymousStats, GROUP};
use super::hat::TranslationRef;
use super::intervals::Intervals;
use super::part::{Commons, Objects, Part};
use super::region::FaultError;
use crate::CacheError;
use crate::anonymous::AnonymousPages;

/// The number of regions considered when one has to give pages back.
const CANDIDATES: usize = 32;

/// Memory that a child has inherited from its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The addresses.
    pub range: Range<u64>,
    /// Whether the child finds zeros there (`MADV_WIPEONFORK`).
    pub wiped: bool,
}

/// A program's memory, as faults see it.
#[refit_objects::interface(name = "process", state = ())]
pub trait Process {
    /// Resolves the fault of a thread that waits for the page at `address`. On success the page is
    /// in, or the thread continues for another reason.
    fn fault(&self, address: u64) -> Result<(), FaultError>;
}

/// The description of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Its addresses, not all of which need be mapped.
    pub range: Range<u64>,
    /// Its name.
    pub name: String,
    /// The contents and counters of its cache.
    pub stats: AnonymousStats,
    /// Number of its pages that are in the store.
    pub stored: u64,
    /// The implementations of its region and its cache; `None` if it has not been accessed yet.
    pub implementations: Option<(String, String)>,
    /// Whether the kernel alone resolves its faults.
    pub native: bool,
}

/// An address space.
#[derive(Debug)]
pub struct Space {
    name: String,
    hat: TranslationRef,
    commons: Arc<Commons>,
    /// A part can have several ranges, between which memory has been unmapped.
    places: RwLock<Intervals<Part>>,
    /// The position at which the next eviction looks for a region.
    turn: AtomicUsize,
    draws: Draws,
}

impl Space {
    /// Creates an address space without regions. `name` is the name of its objects.
    pub fn new(name: impl Into<String>, hat: TranslationRef, commons: Arc<Commons>) -> Arc<Self> {
        let (places, turn) = (RwLock::default(), AtomicUsize::new(0));
        let draws = Draws::default();
        Arc::new(Self { name: name.into(), hat, commons, places, turn, draws })
    }

    /// Creates the object that receives faults.
    pub fn process(self: &Arc<Self>) -> ProcessRef {
        let space = Arc::clone(self);
        let make = move || Server(Arc::clone(&space));
        let choices = Choices::new().with(ONE_TABLE, ProcessInterface::rep, make);
        choices.create(self.name.as_str(), ONE_TABLE).expect("it is the one choice")
    }

    /// Returns the name of its objects.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the translation by which pages enter and leave.
    pub fn hat(&self) -> TranslationRef {
        self.hat
    }

    /// Returns the resources that it shares with others.
    pub fn commons(&self) -> &Arc<Commons> {
        &self.commons
    }

    /// Serves a range from now on. The parts of it that are not served yet join an adjacent region
    /// of the same name, or become one.
    pub fn map(&self, range: &Range<u64>, name: &str) {
        let mut places = self.write();
        for gap in places.gaps(range) {
            let joins = |part: &&Arc<Part>| part.name == name && part.served();
            let beside = places.neighbours(&gap).find(joins).cloned();
            let part = match beside {
                Some(part) => part,
                None => Part::new(gap.start, name, 0, self.nothing()),
            };
            places.insert(gap, part);
        }
    }

    /// Adds an unreported page at `address`: the adjacent region has grown, as a stack does.
    pub fn grow(&self, address: u64) {
        let page = address / PAGE_SIZE_U64 * PAGE_SIZE_U64;
        let mut places = self.write();
        let part = match places.nearest(page) {
            Some(part) => Arc::clone(part),
            None => Part::new(page, "", 0, self.nothing()),
        };
        for gap in places.gaps(&(page..page + PAGE_SIZE_U64)) {
            places.insert(gap, Arc::clone(&part));
        }
    }

    fn nothing(&self) -> AnonymousPages {
        AnonymousPages::new(Arc::clone(&self.commons.store), i64::MAX as u64)
    }

    /// Stops serving a range, which has been unmapped.
    pub fn unmap(&self, range: &Range<u64>) {
        self.carve(&mut self.write(), range);
    }

    fn carve(&self, places: &mut Intervals<Part>, range: &Range<u64>) {
        for (range, part) in places.carve(range) {
            part.forget(&range);
        }
    }

    /// Records that the contents of a range are discarded, now or soon. It is still served.
    pub fn remove(&self, range: &Range<u64>) {
        for (range, part) in self.read().within(range) {
            let pages = part.pages_of(&range);
            match part.fcm() {
                Some(fcm) => fcm.doom(pages.start, pages.end),
                None => drop(part.pages.split_off(pages)),
            }
        }
    }

    /// Records that a range has been moved. The unmapping of its destination has been reported
    /// before; the unmapping of its origin is reported separately afterwards.
    pub fn remap(&self, from: &Range<u64>, to: u64) {
        let mut places = self.write();
        let by = to.wrapping_sub(from.start).cast_signed();
        for (range, part) in places.carve(from) {
            let now = range.start.wrapping_add_signed(by)..range.end.wrapping_add_signed(by);
            let pages = part.pages_of(&range);
            let moved = part.moved.wrapping_add(by);
            let out = part.pages.split_off(pages.clone());
            let made = Part::new(now.start, &part.name, moved, out);
            if let Some(fcm) = part.fcm() {
                self.objects(&made).fcm.join(fcm.split_off(pages.start, pages.end));
            }
            self.carve(&mut places, &now);
            places.insert(now, made);
        }
    }

    /// Returns the address space of a child. It shares the pages that are out; the kernel has given
    /// it those that are in.
    pub fn fork(&self, name: impl Into<String>, hat: TranslationRef) -> Arc<Self> {
        let child = Self::new(name, hat, Arc::clone(&self.commons));
        let mut places = child.write();
        let mut made = FxHashMap::default();
        for (range, part) in self.read().iter() {
            let new = made.entry(Arc::as_ptr(part)).or_insert_with(|| {
                Part::new(range.start, &part.name, part.moved, part.pages.fork())
            });
            places.insert(range, Arc::clone(new));
        }
        drop(places);
        child
    }

    /// Removes all memory from a child that it has not inherited, and the contents of memory that
    /// was wiped (`MADV_DONTFORK`, `MADV_WIPEONFORK`).
    pub(super) fn inherit(&self, inherited: &[Inherited]) {
        let mut places = self.write();
        let mut has = Intervals::default();
        let (kept, wiped) = (Arc::new(false), Arc::new(true));
        for one in inherited {
            // Mappings of one process do not overlap, but the caller's information may be wrong.
            if has.within(&one.range).is_empty() {
                has.insert(one.range.clone(), Arc::clone(if one.wiped { &wiped } else { &kept }));
            }
        }
        let all: Vec<Range<u64>> = places.iter().map(|(range, _)| range).collect();
        for range in all {
            for missing in has.gaps(&range) {
                self.carve(&mut places, &missing);
            }
            for (part_of_it, _) in has.within(&range).into_iter().filter(|(_, wiped)| **wiped) {
                for (zeros, part) in places.within(&part_of_it) {
                    part.forget(&zeros);
                }
            }
        }
    }

    /// Returns whether any page is out of the program.
    pub(super) fn anything_is_out(&self) -> bool {
        self.read().iter().any(|(_, part)| !part.pages.is_empty())
    }

    /// Counts pages that are in the program from now on; `addresses` are those of whole pages.
    /// Returns how many could be counted.
    pub fn adopt(&self, addresses: &[u64]) -> usize {
        let places = self.read();
        let mut done = 0;
        for run in addresses.chunk_by(|one, next| one + PAGE_SIZE_U64 == *next) {
            for (range, part) in places.within(&(run[0]..run[run.len() - 1] + PAGE_SIZE_U64)) {
                let pages: Vec<u64> = part.pages_of(&range).collect();
                let some = self.objects(&part).fcm.adopt(&pages);
                if some < pages.len() {
                    // Exact to the page: pages that are counted can be evicted before the rest is
                    // counted.
                    let before = (range.start - run[0]) / PAGE_SIZE_U64;
                    return done + before as usize + some;
                }
            }
            done += run.len();
        }
        done
    }

    /// Chooses pages of one region to evict. The region is drawn with a probability in proportion
    /// to its spare pages or, if no region has enough of these, to its resident pages. The region's
    /// cache chooses the pages.
    pub(super) fn recall(&self, most: usize) -> Option<RecallBatch> {
        let places = self.read();
        let begin = self.turn.fetch_add(CANDIDATES, Relaxed);
        let all = places.iter().filter_map(|(_, part)| Some((part.fcm()?, part)));
        let all: Vec<_> = all.filter(|(_, part)| part.served()).collect();
        let candidates = (0..all.len().min(CANDIDATES)).map(|at| all[(begin + at) % all.len()]);
        let mut candidates: Vec<_> = candidates.collect();
        let spares = candidates.iter().any(|(fcm, _)| fcm.spare() >= GROUP);
        let weight = |(fcm, _): &(AnonymousCacheRef, _)| {
            if spares { fcm.spare() } else { fcm.stats().resident }
        };
        while let Some(at) = self.draws.draw(candidates.iter().map(weight)) {
            let (fcm, part) = candidates.swap_remove(at);
            let pages = fcm.recall(most);
            if !pages.is_empty() {
                let addresses = pages.iter().map(|&page| part.address(page)).collect();
                let behind = part.pages.clone();
                return Some(RecallBatch { fcm, behind, pages, addresses });
            }
        }
        None
    }

    /// Returns whether pages are kept, of this program or another one, because they could not be
    /// stored.
    pub(super) fn keeps_any(&self) -> bool {
        self.commons.store.keeps_any()
    }

    /// Stores its pages that are kept. None of them may come back to the program, or be discarded,
    /// meanwhile.
    pub(super) fn store_kept(&self) -> Result<(), CacheError> {
        self.parts().iter().try_for_each(|(_, part)| part.store_kept())
    }

    /// Returns the doomed pages, by region.
    pub(super) fn doomed(&self) -> Vec<RecallBatch> {
        let all = self.parts().into_iter().filter_map(|(_, part)| {
            let fcm = part.fcm()?;
            let pages = fcm.doomed();
            let addresses = pages.iter().map(|&page| part.address(page)).collect();
            Some(RecallBatch { fcm, behind: part.pages.clone(), pages, addresses })
        });
        all.filter(|one| !one.pages.is_empty()).collect()
    }

    /// Returns the addresses of all pages of such regions that are out and were once in.
    pub(super) fn out(&self, which: Which) -> Vec<u64> {
        let places = self.read();
        let all = places.iter().filter(|(_, part)| which.means(part)).flat_map(|(range, part)| {
            let addresses = part.pages.numbers().into_iter().map(|page| part.address(page));
            addresses.filter(move |address| range.contains(address)).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Returns the regions, each with the span of its ranges.
    fn parts(&self) -> Vec<(Range<u64>, Arc<Part>)> {
        let mut parts: Vec<(Range<u64>, Arc<Part>)> = Vec::new();
        let mut known: FxHashMap<_, usize> = FxHashMap::default();
        for (range, part) in self.read().iter() {
            match known.entry(Arc::as_ptr(part)) {
                Entry::Occupied(at) => parts[*at.get()].0.end = range.end,
                Entry::Vacant(at) => {
                    at.insert(parts.len());
                    parts.push((range, Arc::clone(part)));
                }
            }
        }
        parts
    }

    /// Returns the number of pages that should be evicted before those of other programs.
    pub fn spare(&self) -> u64 {
        let spare = |(_, part): &(_, Arc<Part>)| part.fcm().map(|fcm| fcm.spare());
        self.parts().iter().filter_map(spare).sum()
    }

    /// Returns the number of its pages that are counted as in the program.
    pub fn resident(&self) -> u64 {
        self.stats().resident
    }

    /// Returns the sum of the contents and counters of its caches.
    pub fn stats(&self) -> AnonymousStats {
        // Each part is held until it has been asked, since its cache ends with it.
        let stats = |(_, part): &(_, Arc<Part>)| part.fcm().map(|fcm| fcm.stats());
        self.parts().iter().filter_map(stats).sum()
    }

    /// Returns the descriptions of its regions.
    pub fn regions(&self) -> Vec<RegionInfo> {
        let info = |(range, part): (Range<u64>, Arc<Part>)| RegionInfo {
            range,
            name: part.name.clone(),
            stats: part.fcm().map(|fcm| fcm.stats()).unwrap_or_default(),
            stored: part.pages.len() as u64,
            implementations: part.implementations(),
            native: part.is_native(),
        };
        self.parts().into_iter().map(info).collect()
    }

    /// Returns the ranges of such regions.
    pub(super) fn ranges(&self, which: Which) -> Vec<Range<u64>> {
        let places = self.read();
        let ranges = places.iter().filter(|(_, part)| which.means(part));
        ranges.map(|(range, _)| range).collect()
    }

    /// Stops serving everything: gives back all that it has had, and ends its objects.
    pub fn end(&self) {
        self.unmap(&(0..u64::MAX));
    }

    /// Decides which regions will be left to the kernel. Returns whether any will.
    pub(super) fn decide(&self) -> bool {
        // No short circuit: all of them have to decide.
        self.read().iter().fold(false, |any, (_, part)| part.decide() || any)
    }

    /// Leaves to the kernel the regions for which that was decided; none of their pages may be out.
    pub(super) fn leave_to_kernel(&self) {
        let places = self.read();
        let leaving = places.iter().filter(|(_, part)| part.is_leaving());
        leaving.for_each(|(_, part)| part.leave_to_kernel());
    }

    /// Takes back from the kernel the regions that should be served again. A region that the kernel
    /// serves and where nothing is mapped any more ends, since its unmapping was not reported.
    /// `mapped` holds all ranges that could be served.
    pub fn resume(&self, mapped: &[Range<u64>]) {
        let mut places = self.write();
        let native = places.iter().filter(|(_, part)| part.is_native());
        let native: Vec<_> = native.map(|(range, part)| (range, Arc::clone(part))).collect();
        for (range, part) in native {
            if part.served() {
                part.resume();
            }
            if !mapped.iter().any(|one| one.start < range.end && range.start < one.end) {
                self.carve(&mut places, &range);
            }
        }
    }

    /// Returns the ranges of regions whose faults the kernel resolves.
    pub fn native(&self) -> Vec<Range<u64>> {
        self.ranges(Which::Native)
    }

    fn objects(&self, part: &Part) -> Objects {
        part.objects(&self.name, &self.commons, self.hat)
    }

    fn read(&self) -> RwLockReadGuard<'_, Intervals<Part>> {
        self.places.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Intervals<Part>> {
        self.places.write()
    }
}

/// A selection of regions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// The ranges that will be left to the kernel.
    Leaving,
    /// The ranges that the kernel serves.
    Native,
}

impl Which {
    fn means(self, part: &Part) -> bool {
        match self {
            Self::All => true,
            Self::Leaving => part.is_leaving(),
            Self::Native => part.is_native(),
        }
    }
}

/// Pages of one region, by number and by address.
pub(super) struct RecallBatch {
    pub(super) fcm: AnonymousCacheRef,
    pub(super) behind: AnonymousPages,
    pub(super) pages: Vec<u64>,
    pub(super) addresses: Vec<u64>,
}

impl RecallBatch {
    /// Removes the pages of these addresses, which stay in the program.
    pub(super) fn keep(&mut self, needed: &[u64]) {
        let stays =
            |address: &u64| needed.iter().any(|one| one / PAGE_SIZE_U64 == address / PAGE_SIZE_U64);
        let (stay, go): (Vec<_>, Vec<_>) =
            self.pages.iter().zip(&self.addresses).partition(|(_, address)| stays(address));
        let stay: Vec<u64> = stay.into_iter().map(|(&page, _)| page).collect();
        let (pages, addresses) = go.into_iter().map(|(&page, &address)| (page, address)).unzip();
        (self.pages, self.addresses) = (pages, addresses);
        if !stay.is_empty() {
            self.fcm.stay(&stay);
        }
    }
}

/// The name of the implementation, which has one table of regions.
const ONE_TABLE: &str = "default";

struct Server(Arc<Space>);

impl Process for Server {
    fn fault(&self, address: u64) -> Result<(), FaultError> {
        let found =
            self.0.read().find(address).map(|(end, part)| (self.0.objects(part).region, end));
        let (region, end) = found.ok_or(FaultError::Unknown)?;
        region.fault(address, end)
    }
}

// The table belongs to the address space, whichever implementation uses it.
impl State<()> for Server {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}
