//! An address space: the regions of a program that are served, and where each is (Hui 2000, §3.2: Process, Region).
//!
//! The path of a fault goes through objects, [`Process`] first. What the program does to its mappings, it tells here. A region has a cache
//! and a representative of its own. Where some of it is moved elsewhere, that becomes a region; so every page is in one cache, and
//! no two caches share anything.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use refit_objects::{Choices, State, TransferError};
use rustc_hash::FxHashMap;

use super::budget::Draws;
use super::fcm::{AnonymousCacheRef, AnonymousStats, GROUP};
use super::hat::TranslationRef;
use super::intervals::Intervals;
use super::pager::Inherited;
use super::part::{Commons, Objects, Part};
use super::region::FaultError;
use crate::PAGE_SIZE;
use crate::anonymous::AnonymousPages;

const PAGE: u64 = PAGE_SIZE as u64;

/// So many regions are looked at when one has to give pages.
const CANDIDATES: usize = 32;

/// A program's memory, as faults see it.
#[refit_objects::interface(name = "process", state = ())]
pub trait Process {
    /// A thread waits for the page at `address`. It is there, or who waits goes on otherwise, when this has returned well.
    fn fault(&self, address: u64) -> Result<(), FaultError>;
}

/// What is known of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Where it is. Not all of it need be mapped.
    pub range: Range<u64>,
    /// What it is.
    pub name: String,
    /// What its cache holds and has done.
    pub stats: AnonymousStats,
    /// Pages of it that are in the store.
    pub stored: u64,
    /// By which implementations its region and its cache are served; `None`: nothing of it has been touched yet.
    pub implementations: Option<(String, String)>,
    /// The kernel alone resolves its faults.
    pub native: bool,
}

/// An address space.
#[derive(Debug)]
pub struct Space {
    name: String,
    hat: TranslationRef,
    commons: Arc<Commons>,
    /// A part can be in several ranges: what is between them has been unmapped.
    places: RwLock<Intervals<Part>>,
    /// Where the next eviction looks for a region.
    turn: AtomicUsize,
    draws: Draws,
}

impl Space {
    /// An address space without regions. `name` is what its objects are called by.
    pub fn new(name: impl Into<String>, hat: TranslationRef, commons: Arc<Commons>) -> Arc<Self> {
        let (places, turn) = (RwLock::default(), AtomicUsize::new(0));
        let draws = Draws::default();
        Arc::new(Self { name: name.into(), hat, commons, places, turn, draws })
    }

    /// Makes the object that faults are told to.
    pub fn process(self: &Arc<Self>) -> ProcessRef {
        let space = Arc::clone(self);
        let make = move || Server(Arc::clone(&space));
        let choices = Choices::new().with(ONE_TABLE, ProcessInterface::rep, make);
        choices.create(self.name.as_str(), ONE_TABLE).expect("it is the one choice")
    }

    /// What its objects are called by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How pages come and go.
    pub fn hat(&self) -> TranslationRef {
        self.hat
    }

    /// What it shares with others.
    pub fn commons(&self) -> &Arc<Commons> {
        &self.commons
    }

    /// A range is served from now on. What of it is not yet belongs to a region beside it that is called the same, or is one.
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

    /// Something of ours is at `address` that nobody has told of: the region next to it has grown, a stack for one.
    pub fn grow(&self, address: u64) {
        let page = address / PAGE * PAGE;
        let mut places = self.write();
        let part = match places.nearest(page) {
            Some(part) => Arc::clone(part),
            None => Part::new(page, "", 0, self.nothing()),
        };
        for gap in places.gaps(&(page..page + PAGE)) {
            places.insert(gap, Arc::clone(&part));
        }
    }

    fn nothing(&self) -> AnonymousPages {
        AnonymousPages::new(Arc::clone(&self.commons.store), i64::MAX as u64)
    }

    /// A range is not served any more: what was there is nobody's.
    pub fn unmap(&self, range: &Range<u64>) {
        self.carve(&mut self.write(), range);
    }

    fn carve(&self, places: &mut Intervals<Part>, range: &Range<u64>) {
        for (range, part) in places.carve(range) {
            part.forget(&range);
        }
    }

    /// The contents of a range are thrown away, now or soon; it is still served.
    pub fn remove(&self, range: &Range<u64>) {
        for (range, part) in self.read().within(range) {
            let pages = part.pages_of(&range);
            match part.fcm() {
                Some(fcm) => fcm.doom(pages.start, pages.end),
                None => drop(part.pages.split_off(pages)),
            }
        }
    }

    /// A range has been moved. What was where it is now has been told to be unmapped before; that it is not where it was is told
    /// besides, and after.
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

    /// The address space of a child: pages that are out are its, too; those that are in it has from the kernel.
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

    /// A child has nothing of its parent's memory but this, and of some of it not the contents (`MADV_DONTFORK`, `MADV_WIPEONFORK`).
    pub(super) fn inherit(&self, inherited: &[Inherited]) {
        let mut places = self.write();
        let mut has = Intervals::default();
        let (kept, wiped) = (Arc::new(false), Arc::new(true));
        for one in inherited {
            // Mappings of one process do not overlap; what is told may be wrong all the same.
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

    /// Whether any page is out of the program.
    pub(super) fn anything_is_out(&self) -> bool {
        self.read().iter().any(|(_, part)| !part.pages.is_empty())
    }

    /// Pages that are in the program are counted from now on, `addresses` of whole pages; how many could be.
    pub fn adopt(&self, addresses: &[u64]) -> usize {
        let places = self.read();
        let mut done = 0;
        for run in addresses.chunk_by(|one, next| one + PAGE == *next) {
            for (range, part) in places.within(&(run[0]..run[run.len() - 1] + PAGE)) {
                let pages: Vec<u64> = part.pages_of(&range).collect();
                let some = self.objects(&part).fcm.adopt(&pages);
                if some < pages.len() {
                    // To the page: what is counted can be out again before the rest is.
                    let before = (range.start - run[0]) / PAGE;
                    return done + before as usize + some;
                }
            }
            done += run.len();
        }
        done
    }

    /// Chooses pages of one region to go out: of one that can spare some, or else each page has the same chance that its region is
    /// chosen; which of its pages go, the region's cache says.
    pub(super) fn recall(&self, most: usize) -> Option<Recalled> {
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
                return Some(Recalled { fcm, behind, pages, addresses });
            }
        }
        None
    }

    /// Pages that are doomed, by region: its cache, its pages, and their addresses.
    pub(super) fn doomed(&self) -> Vec<Recalled> {
        let all = self.parts().into_iter().filter_map(|(_, part)| {
            let fcm = part.fcm()?;
            let pages = fcm.doomed();
            let addresses = pages.iter().map(|&page| part.address(page)).collect();
            Some(Recalled { fcm, behind: part.pages.clone(), pages, addresses })
        });
        all.filter(|one| !one.pages.is_empty()).collect()
    }

    /// The addresses of all pages of such regions that are out, as far as they were ever in.
    pub(super) fn out(&self, which: Which) -> Vec<u64> {
        let places = self.read();
        let all = places.iter().filter(|(_, part)| which.means(part)).flat_map(|(range, part)| {
            let addresses = part.pages.numbers().into_iter().map(|page| part.address(page));
            addresses.filter(move |address| range.contains(address)).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Its regions, and from where to where each reaches.
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

    /// How many pages can go before any of others should.
    pub fn spare(&self) -> u64 {
        let spare = |(_, part): &(_, Arc<Part>)| part.fcm().map(|fcm| fcm.spare());
        self.parts().iter().filter_map(spare).sum()
    }

    /// How many pages of it are counted as being in the program.
    pub fn resident(&self) -> u64 {
        self.stats().resident
    }

    /// What its caches hold and have done, all together.
    pub fn stats(&self) -> AnonymousStats {
        // Each is held until it has been asked: its cache ends with it.
        let stats = |(_, part): &(_, Arc<Part>)| part.fcm().map(|fcm| fcm.stats());
        self.parts().iter().filter_map(stats).sum()
    }

    /// Its regions.
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

    /// Where such regions are.
    pub(super) fn ranges(&self, which: Which) -> Vec<Range<u64>> {
        let places = self.read();
        let ranges = places.iter().filter(|(_, part)| which.means(part));
        ranges.map(|(range, _)| range).collect()
    }

    /// Nothing is served any more: all that it has had is given back, and its objects end.
    pub fn end(&self) {
        self.unmap(&(0..u64::MAX));
    }

    /// Which regions are to be the kernel's is decided now; whether any are.
    pub(super) fn decide(&self) -> bool {
        // All of them, also behind the first.
        self.read().iter().fold(false, |any, (_, part)| part.decide() || any)
    }

    /// Regions for which that was decided, and of which nothing is out, are the kernel's from now on.
    pub(super) fn leave_to_kernel(&self) {
        let places = self.read();
        let leaving = places.iter().filter(|(_, part)| part.is_leaving());
        leaving.for_each(|(_, part)| part.leave_to_kernel());
    }

    /// Regions that are to be served again are not the kernel's any more. Where one is the kernel's and nothing is mapped any more, it ends:
    /// nobody has told of that. `mapped`: all that could be served.
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

    /// Where the kernel resolves faults although there are regions.
    pub fn native(&self) -> Vec<Range<u64>> {
        self.ranges(Which::Native)
    }

    fn objects(&self, part: &Part) -> Objects {
        part.objects(&self.name, &self.commons, self.hat)
    }

    fn read(&self) -> RwLockReadGuard<'_, Intervals<Part>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Intervals<Part>> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Some of its regions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Those of which is decided that the kernel is to serve them.
    Leaving,
    /// Those that the kernel serves.
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
pub(super) struct Recalled {
    pub(super) fcm: AnonymousCacheRef,
    pub(super) behind: AnonymousPages,
    pub(super) pages: Vec<u64>,
    pub(super) addresses: Vec<u64>,
}

impl Recalled {
    /// The pages of these addresses stay.
    pub(super) fn keep(&mut self, needed: &[u64]) {
        let stays = |address: &u64| needed.iter().any(|one| one / PAGE == address / PAGE);
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

/// Name of the implementation: one table of regions.
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

// The table is the address space's, whoever serves from it.
impl State<()> for Server {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}
