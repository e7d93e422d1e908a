//! An address space: the regions of a program that are served, and where each is (Hui 2000, §3.2: Process, Region).
//!
//! The path of a fault goes through objects, [`Process`] first. What the program does to its mappings, it tells here. A region has a cache
//! and a representative of its own. Where a part of it is moved elsewhere, that part becomes a region; so every page is in one cache, and
//! no two caches share anything.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use refit_objects::{Choices, CreateError, Interface, State, TransferError, destroy};

use super::budget::BudgetRef;
use super::cache::{AnonymousCacheFactory, AnonymousParts, create_anonymous_cache};
use super::fcm::{AnonymousCacheInterface, AnonymousCacheRef, AnonymousStats};
use super::hat::TranslationRef;
use super::region::{FaultError, RegionInterface, RegionParts, RegionRef, create_region};
use crate::PAGE_SIZE;
use crate::anonymous::AnonymousPages;
use crate::fr::{FileRepresentativeInterface, FileRepresentativeRef};
use crate::store::PageStore;

const PAGE: u64 = PAGE_SIZE as u64;

/// A program's memory, as faults see it.
#[refit_objects::interface(name = "process", state = ())]
pub trait Process {
    /// A thread waits for the page at `address`. It is there, or who waits goes on otherwise, when this has returned well.
    fn fault(&self, address: u64) -> Result<(), FaultError>;
}

/// What address spaces of one tree share.
#[derive(Debug)]
pub struct Commons {
    /// Where frames come from.
    pub budget: BudgetRef,
    /// Where pages go.
    pub store: Arc<PageStore>,
    /// What their caches are made by.
    pub caches: AnonymousCacheFactory,
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
}

/// An address space.
#[derive(Debug)]
pub struct Space {
    name: String,
    hat: TranslationRef,
    commons: Arc<Commons>,
    places: RwLock<BTreeMap<u64, Place>>,
    /// Where the next eviction begins.
    turn: AtomicUsize,
}

/// A region and where it is; keyed by its start.
#[derive(Clone, Debug)]
struct Place {
    end: u64,
    name: String,
    moved: i64,
    region: RegionRef,
    fcm: AnonymousCacheRef,
    fr: FileRepresentativeRef,
    pages: AnonymousPages,
}

impl Place {
    /// The pages in its cache that stand for addresses.
    fn pages_of(&self, range: &Range<u64>) -> Range<u64> {
        let page = |address: u64| address.wrapping_add_signed(-self.moved) / PAGE;
        page(range.start)..page(range.end)
    }

    fn address(&self, page: u64) -> u64 {
        (page * PAGE).wrapping_add_signed(self.moved)
    }

    fn end_objects(&self) {
        destroy(RegionInterface::id(self.region));
        self.fcm.forget(0, u64::MAX / PAGE);
        destroy(AnonymousCacheInterface::id(self.fcm));
        destroy(FileRepresentativeInterface::id(self.fr));
    }
}

impl Space {
    /// An address space without regions. `name` is what its objects are called by.
    pub fn new(name: impl Into<String>, hat: TranslationRef, commons: Arc<Commons>) -> Arc<Self> {
        let (places, turn) = (RwLock::default(), AtomicUsize::new(0));
        Arc::new(Self { name: name.into(), hat, commons, places, turn })
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

    /// A range is served from now on. It belongs to the region that it lies in, or that ends or begins where it begins or ends and is
    /// called the same; or it is one itself.
    ///
    /// # Errors
    /// No cache can be made.
    pub fn map(&self, range: &Range<u64>, name: &str) -> Result<(), CreateError> {
        let mut places = self.write();
        let around =
            places.range(..=range.end).next_back().map(|(&start, place)| (start, place.clone()));
        if let Some((start, mut place)) = around
            && place.end >= range.start
            && (place.name == name || (place.end > range.start && start < range.end))
        {
            places.remove(&start);
            place.end = place.end.max(range.end);
            places.insert(start.min(range.start), place);
            return Ok(());
        }
        let pages = AnonymousPages::new(Arc::clone(&self.commons.store), i64::MAX as u64);
        let place = self.place(range, name, 0, pages)?;
        places.insert(range.start, place);
        Ok(())
    }

    fn place(
        &self,
        range: &Range<u64>,
        name: &str,
        moved: i64,
        pages: AnonymousPages,
    ) -> Result<Place, CreateError> {
        let called = format!("{}/{:x}", self.name, range.start);
        let fr = pages.representative(called.as_str());
        let parts = AnonymousParts { budget: self.commons.budget, fr };
        let fcm = create_anonymous_cache(&self.commons.caches, called.as_str(), parts)?;
        let parts = RegionParts { fcm, hat: self.hat, moved };
        let region = create_region(called, parts);
        Ok(Place { end: range.end, name: name.to_owned(), moved, region, fcm, fr, pages })
    }

    /// Something of ours is at `address` that nobody has told of: the region next to it has grown, a stack for one.
    ///
    /// # Errors
    /// No cache can be made.
    pub fn grow(&self, address: u64) -> Result<(), CreateError> {
        let page = address / PAGE * PAGE;
        let mut places = self.write();
        let below = places
            .range(..=page)
            .next_back()
            .map(|(&start, place)| (start, page - place.end.min(page)));
        let above = places.range(page..).next().map(|(&start, _)| (start, start - page));
        let nearest = [below, above].into_iter().flatten().min_by_key(|&(_, gap)| gap);
        if let Some((start, _)) = nearest
            && let Some(mut place) = places.remove(&start)
        {
            place.end = place.end.max(page + PAGE);
            places.insert(start.min(page), place);
            return Ok(());
        }
        drop(places);
        self.map(&(page..page + PAGE), "")
    }

    /// A range is not served any more: what was there is nobody's.
    pub fn unmap(&self, range: &Range<u64>) {
        let mut places = self.write();
        for start in Self::touched(&places, range) {
            let Some(mut place) = places.remove(&start) else { continue };
            let gone = range.start.max(start)..range.end.min(place.end);
            if gone == (start..place.end) {
                place.end_objects();
                continue;
            }
            let pages = place.pages_of(&gone);
            place.fcm.forget(pages.start, pages.end);
            // A hole in the middle stays part of it: nothing faults there.
            let from = if gone.start == start { gone.end } else { start };
            if gone.end == place.end {
                place.end = gone.start;
            }
            places.insert(from, place);
        }
    }

    /// The contents of a range are thrown away, now or soon; it is still served.
    pub fn remove(&self, range: &Range<u64>) {
        let places = self.read();
        for start in Self::touched(&places, range) {
            let Some(place) = places.get(&start) else { continue };
            let pages = place.pages_of(&(range.start.max(start)..range.end.min(place.end)));
            place.fcm.doom(pages.start, pages.end);
        }
    }

    /// A range has been moved. That it is not where it was any more is told besides.
    ///
    /// # Errors
    /// No cache can be made.
    pub fn remap(&self, from: &Range<u64>, to: u64) -> Result<(), CreateError> {
        let mut places = self.write();
        for start in Self::touched(&places, from) {
            let Some(place) = places.get(&start).cloned() else { continue };
            let part = from.start.max(start)..from.end.min(place.end);
            let by = to.wrapping_sub(from.start).cast_signed();
            let now = part.start.wrapping_add_signed(by)..part.end.wrapping_add_signed(by);
            let pages = place.pages_of(&part);
            let made = self.place(
                &now,
                &place.name,
                place.moved + by,
                place.pages.split_off(pages.clone()),
            )?;
            let state = place.fcm.split_off(pages.start, pages.end);
            made.fcm.join(state);
            places.insert(now.start, made);
        }
        Ok(())
    }

    /// The starts of regions that have part of a range.
    fn touched(places: &BTreeMap<u64, Place>, range: &Range<u64>) -> Vec<u64> {
        let first =
            places.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let inside = places.range(first..range.end.max(first));
        inside.filter(|(_, place)| place.end > range.start).map(|(&start, _)| start).collect()
    }

    /// The address space of a child: pages that are out are its, too; those that are in it has from the kernel.
    ///
    /// # Errors
    /// No cache can be made.
    pub fn fork(
        &self,
        name: impl Into<String>,
        hat: TranslationRef,
    ) -> Result<Arc<Self>, CreateError> {
        let child = Self::new(name, hat, Arc::clone(&self.commons));
        let mut places = child.write();
        for (&start, place) in &*self.read() {
            let range = start..place.end;
            let made = child.place(&range, &place.name, place.moved, place.pages.fork())?;
            places.insert(start, made);
        }
        drop(places);
        Ok(child)
    }

    /// Pages that are in the program are counted from now on, `addresses` of whole pages; how many could be.
    pub fn adopt(&self, addresses: &[u64]) -> usize {
        let mut done = 0;
        for run in addresses.chunk_by(|one, next| one + PAGE == *next) {
            let places = self.read();
            let Some((_, place)) = Self::find(&places, run[0]) else {
                done += run.len();
                continue;
            };
            let fcm = place.fcm;
            let pages: Vec<u64> = run
                .iter()
                .map(|address| address.wrapping_add_signed(-place.moved) / PAGE)
                .collect();
            drop(places);
            let some = fcm.adopt(&pages);
            done += some;
            if some < pages.len() {
                break;
            }
        }
        done
    }

    /// Chooses pages of one region to go out; the region's cache and the pages' addresses.
    pub(super) fn recall(&self, most: usize) -> Option<Recalled> {
        let places = self.read();
        let all: Vec<&Place> = places.values().collect();
        for _ in 0..all.len() {
            let place = all[self.turn.fetch_add(1, Relaxed) % all.len()];
            let pages = place.fcm.recall(most);
            if !pages.is_empty() {
                let addresses = pages.iter().map(|&page| place.address(page)).collect();
                return Some(Recalled {
                    fcm: place.fcm,
                    behind: place.pages.clone(),
                    pages,
                    addresses,
                });
            }
        }
        None
    }

    /// Pages that are doomed, by region: its cache, its pages, and their addresses.
    pub(super) fn doomed(&self) -> Vec<Recalled> {
        let places = self.read();
        let all = places.values().map(|place| {
            let pages = place.fcm.doomed();
            let addresses = pages.iter().map(|&page| place.address(page)).collect();
            Recalled { fcm: place.fcm, behind: place.pages.clone(), pages, addresses }
        });
        all.filter(|one| !one.pages.is_empty()).collect()
    }

    /// The addresses of all pages that are out, as far as they were ever in.
    pub(super) fn out(&self) -> Vec<u64> {
        let places = self.read();
        let all = places.iter().flat_map(|(&start, place)| {
            let addresses = place.pages.numbers().into_iter().map(|page| place.address(page));
            addresses
                .filter(move |address| (start..place.end).contains(address))
                .collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Its regions.
    pub fn regions(&self) -> Vec<RegionInfo> {
        let info = |(&start, place): (&u64, &Place)| RegionInfo {
            range: start..place.end,
            name: place.name.clone(),
            stats: place.fcm.stats(),
            stored: place.pages.len() as u64,
        };
        self.read().iter().map(info).collect()
    }

    /// Nothing is served any more: all that it has had is given back, and its objects end.
    pub fn end(&self) {
        for place in std::mem::take(&mut *self.write()).into_values() {
            place.end_objects();
        }
    }

    fn find(places: &BTreeMap<u64, Place>, address: u64) -> Option<(u64, &Place)> {
        let (&start, place) = places.range(..=address).next_back()?;
        (address < place.end).then_some((start, place))
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Place>> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pages of one region, by number and by address.
pub(super) struct Recalled {
    pub(super) fcm: AnonymousCacheRef,
    pub(super) behind: AnonymousPages,
    pub(super) pages: Vec<u64>,
    pub(super) addresses: Vec<u64>,
}

/// Name of the implementation: one table of regions.
const ONE_TABLE: &str = "default";

struct Server(Arc<Space>);

impl Process for Server {
    fn fault(&self, address: u64) -> Result<(), FaultError> {
        let region = Space::find(&self.0.read(), address).map(|(_, place)| place.region);
        region.ok_or(FaultError::Unknown)?.fault(address)
    }
}

// The table is the address space's, whoever serves from it.
impl State<()> for Server {
    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}
