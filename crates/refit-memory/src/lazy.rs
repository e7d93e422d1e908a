//! The index of a cache that takes its pages over lazily. A page that has not moved yet is found in
//! the stripes of the old cache; it moves when it is used, or when the drain reaches it (Hui 2000,
//! §4.4.4).
//!
//! A lazy transfer hands over the same state as one by reference: the old cache's stripes. But the
//! new cache does not use them as its own index. It begins with an empty index and keeps the
//! stripes as a *layer* beneath. So its tables are rebuilt, as in a transfer by copying, but calls
//! wait no longer than in one by reference.
//!
//! * *No page is ever in transit.* Each partition keeps the layers of its own pages under the lock
//!   under which it keeps its index. A thread that holds the lock finds a page either in the index
//!   or in one layer, never in both, and it moves in one step. So the general mechanism,
//!   `refit_objects::transfer::Lazy`, with its own locks and rules for lookups, is not needed: a
//!   lookup goes through the layers, and whether a page has moved changes no result.
//! * *Nothing comes back.* A page that is removed from the index is also removed from the layer if
//!   it is there; there is no second copy that could be found later.
//! * *The division is the same.* A layer has as many stripes as there are partitions, or a single
//!   stripe of few pages, which is divided on arrival. So a partition needs no other's lock to find
//!   a page that has not moved.
//! * *Another lazy swap* hands on the layers together with the index built so far, as one more
//!   layer. A swap by reference moves the rest first, since that has to be a single index.

use std::ops::RangeInclusive;

use crate::frames::{Frame, FramePool};
use crate::index::{CachedPage, Layer, PageIndex, Spot};

/// The pages that one lock protects, whether they have moved or not.
#[derive(Debug, Default)]
pub(crate) struct LazyIndex {
    here: PageIndex,
    /// The layers taken over lazily. Kept after all pages have moved, for the counts.
    beneath: Option<Box<Beneath>>,
}

/// The pages that were taken over and have not moved, and the counts of those that have.
#[derive(Debug, Default)]
struct Beneath {
    /// A page is in at most one of them. They are dropped together, when all are empty.
    layers: Vec<PageIndex>,
    /// The number of layers that the drain has not emptied.
    full: usize,
    /// The position in the last of those at which the drain continues.
    spot: Spot,
    on_demand: u64,
    by_drain: u64,
}

/// The progress of a lazy transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransferProgress {
    pub(crate) left: u64,
    pub(crate) on_demand: u64,
    pub(crate) by_drain: u64,
}

impl Beneath {
    fn len(&self) -> usize {
        self.layers.iter().map(PageIndex::len).sum()
    }

    fn remove(&mut self, pool: &FramePool, page: u64) -> Option<CachedPage> {
        let layer = self.layers.iter_mut().find(|layer| layer.get(pool, page).is_some())?;
        layer.remove(pool, page)
    }

    /// Returns the next page for the drain; `None` only if nothing is left.
    fn next(&mut self, pool: &FramePool) -> Option<CachedPage> {
        while self.full > 0 {
            let layer = &mut self.layers[self.full - 1];
            if let Some((spot, frame)) = layer.next_from(self.spot) {
                self.spot = spot;
                return layer.remove(pool, pool.page(frame));
            }
            // Another pass from the beginning, since removals may have moved pages back there.
            if self.spot == Spot::default() {
                self.full -= 1;
            }
            self.spot = Spot::default();
        }
        None
    }
}

impl LazyIndex {
    /// Creates an empty index, which is divided into `spread` stripes once it has grown.
    pub(crate) fn new(spread: usize) -> Self {
        LazyIndex { here: PageIndex::new(spread), beneath: None }
    }

    fn layers(&self) -> &[PageIndex] {
        self.beneath.as_ref().map_or(&[], |beneath| &beneath.layers)
    }

    /// Returns the index built so far, and the layers beneath.
    fn all(&self) -> impl Iterator<Item = &PageIndex> {
        std::iter::once(&self.here).chain(self.layers())
    }

    /// Returns the number of pages in the index and its layers.
    pub(crate) fn len(&self) -> usize {
        self.all().map(PageIndex::len).sum()
    }

    /// Returns the frame of `page`, in the index or in a layer.
    #[inline]
    pub(crate) fn get(&self, pool: &FramePool, page: u64) -> Option<Frame> {
        let here = self.here.get(pool, page);
        if here.is_some() || self.beneath.is_none() {
            return here;
        }
        self.find(pool, page)
    }

    #[cold]
    fn find(&self, pool: &FramePool, page: u64) -> Option<Frame> {
        self.layers().iter().find_map(|layer| layer.get(pool, page))
    }

    /// Returns the frame of `page`, which is about to be used, and moves the page to the index.
    #[inline]
    pub(crate) fn demand(&mut self, pool: &FramePool, page: u64) -> Option<Frame> {
        let here = self.here.get(pool, page);
        if here.is_some() || self.beneath.is_none() {
            return here;
        }
        self.fetch(pool, page)
    }

    #[cold]
    fn fetch(&mut self, pool: &FramePool, page: u64) -> Option<Frame> {
        let beneath = self.beneath.as_mut()?;
        let found = beneath.remove(pool, page)?;
        beneath.on_demand += 1;
        put(&mut self.here, pool, found);
        Some(found.frame)
    }

    /// Returns all frames, in no particular order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.all().flat_map(PageIndex::frames)
    }

    /// Returns all pages, each with its frame and whether it is dirty, in no particular order.
    pub(crate) fn pages(&self, pool: &FramePool) -> impl Iterator<Item = CachedPage> {
        self.all().flat_map(|index| index.pages(pool))
    }

    /// Returns the pages of one of `parts` stripes.
    pub(crate) fn part(&self, pool: &FramePool, part: usize, parts: usize) -> Vec<CachedPage> {
        let mut pages = self.here.part(pool, part, parts);
        self.layers().iter().for_each(|layer| pages.extend(layer.part(pool, part, parts)));
        pages
    }

    /// Reserves room for `more` pages.
    pub(crate) fn reserve(&mut self, pool: &FramePool, more: usize) {
        self.here.reserve(pool, more);
    }

    /// Adds `frame` under the page in its descriptor, which must not be here yet.
    pub(crate) fn insert(&mut self, pool: &FramePool, frame: Frame) {
        debug_assert!(self.get(pool, pool.page(frame)).is_none(), "a page is in one place");
        self.here.insert(pool, frame);
    }

    /// Removes `page`, dirty or not, and returns its frame.
    pub(crate) fn remove(&mut self, pool: &FramePool, page: u64) -> Option<Frame> {
        self.demand(pool, page)?;
        self.here.remove(pool, page).map(|found| found.frame)
    }

    /// Marks a page dirty, which must have been demanded.
    pub(crate) fn mark_dirty(&mut self, page: u64) {
        self.here.mark_dirty(page);
    }

    /// Marks a page clean, which must have been demanded.
    pub(crate) fn mark_clean(&mut self, page: u64) {
        self.here.mark_clean(page);
    }

    /// Returns the number of dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.all().map(PageIndex::dirty).sum()
    }

    /// Returns the first dirty page among `pages`.
    pub(crate) fn first_dirty(&self, pages: &RangeInclusive<u64>) -> Option<u64> {
        self.all().filter_map(|index| index.first_dirty(pages)).min()
    }

    pub(crate) fn last_dirty(&self) -> Option<u64> {
        self.all().filter_map(PageIndex::last_dirty).max()
    }

    /// Moves up to `most` pages to the index that no call has needed yet. Returns their number.
    pub(crate) fn drain(&mut self, pool: &FramePool, most: usize) -> usize {
        let Some(beneath) = &mut self.beneath else { return 0 };
        let left = beneath.len();
        if most > 0 && beneath.by_drain == 0 {
            // Reserved at once, instead of repeatedly while the table grows.
            self.here.reserve(pool, left);
        }
        let next = std::iter::from_fn(|| beneath.next(pool)).take(most);
        let moved = next.map(|found| put(&mut self.here, pool, found)).count();
        beneath.by_drain += moved as u64;
        if moved == left {
            (beneath.layers, beneath.full) = (Vec::new(), 0);
        }
        moved
    }

    /// Returns the progress of the transfer.
    pub(crate) fn moved(&self) -> TransferProgress {
        let Some(beneath) = &self.beneath else { return TransferProgress::default() };
        let Beneath { on_demand, by_drain, .. } = **beneath;
        TransferProgress { left: beneath.len() as u64, on_demand, by_drain }
    }

    /// Returns the stripes of each layer, the index built here first, for another cache to take
    /// over.
    pub(crate) fn share(&self) -> Vec<Layer> {
        self.all().map(PageIndex::share).collect()
    }

    /// Takes over, by reference, the stripes of another cache that belong under this lock.
    pub(crate) fn adopt(&mut self, stripes: Layer) {
        debug_assert_eq!(self.len(), 0, "an index with pages takes no others");
        self.here = self.here.adopted(stripes);
    }

    /// Takes over, lazily, one more layer of stripes that belong under this lock.
    pub(crate) fn adopt_beneath(&mut self, stripes: Layer) {
        let layer = self.here.adopted(stripes);
        let beneath = self.beneath.get_or_insert_default();
        beneath.layers.push(layer);
        beneath.full += 1;
    }

    /// Drops everything, which another cache has by now.
    pub(crate) fn clear(&mut self) {
        *self = LazyIndex { here: self.here.emptied(), beneath: None };
    }
}

fn put(here: &mut PageIndex, pool: &FramePool, found: CachedPage) {
    here.insert(pool, found.frame);
    if found.dirty {
        here.mark_dirty(found.page);
    }
}
