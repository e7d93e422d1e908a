//! The index of a cache that has taken over lazily: pages that have not moved yet are found where they are, and move when
//! they are used, or by the drain (Hui 2000, §4.4.4).
//!
//! A lazy transfer hands over what one by reference does: the old cache's stripes. The new cache does not make them
//! its own index, though. It begins with an empty one and keeps what it was given as a *layer* beneath. So its tables are
//! made anew, as by copy, while calls wait no longer than by reference.
//!
//! * *No page is ever on its way.* Each partition keeps the layers of its own pages, under the lock under which it keeps
//!   its index. Whoever holds the lock finds a page here or in one layer, never in both, and it moves in one step. So the
//!   general mechanism, `refit_objects::transfer::Lazy`, with locks of its own and rules for who looks up what when, is
//!   not needed: a look-up goes through the layers, and whether a page has moved changes no answer.
//! * *Nothing comes back.* What is taken out of the index is taken out of the layer if it is there; there is no second
//!   copy that could be found later.
//! * *Cut alike.* A layer comes in as many stripes as there are partitions, or in one of few pages, which is dealt
//!   out on arrival. So a partition needs no other's lock to find a page that has not moved.
//! * *One more swap* hands the layers on together with the index that has been made so far, as one more layer. By
//!   reference, the rest is moved first, since there it must be one index.

use std::ops::RangeInclusive;

use crate::fcm::CachedPage;
use crate::frames::{Frame, FramePool};
use crate::index::{Layer, PageIndex, Spot};

/// The pages that one lock protects, whether they have moved or not.
#[derive(Debug, Default)]
pub(crate) struct LazyIndex {
    here: PageIndex,
    /// What was taken over lazily; stays when all of it has moved, for the counts.
    beneath: Option<Box<Beneath>>,
}

/// What was taken over and has not moved, and what has.
#[derive(Debug, Default)]
struct Beneath {
    /// A page is in one of them at most. They are dropped together, when all are empty.
    layers: Vec<PageIndex>,
    /// Layers that the drain has not emptied.
    full: usize,
    /// Where it goes on in the last of those.
    spot: Spot,
    on_demand: u64,
    by_drain: u64,
}

/// How far a lazy transfer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
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

    /// The next page for the drain; none only if nothing is left.
    fn next(&mut self, pool: &FramePool) -> Option<CachedPage> {
        while self.full > 0 {
            let layer = &mut self.layers[self.full - 1];
            if let Some((spot, frame)) = layer.next_from(self.spot) {
                self.spot = spot;
                return layer.remove(pool, pool.page(frame));
            }
            // Once more from the beginning, to where pages may have gone back.
            if self.spot == Spot::default() {
                self.full -= 1;
            }
            self.spot = Spot::default();
        }
        None
    }
}

impl LazyIndex {
    /// An empty index that is to be cut into `spread` stripes when it has grown.
    pub(crate) fn new(spread: usize) -> Self {
        LazyIndex { here: PageIndex::new(spread), beneath: None }
    }

    fn layers(&self) -> &[PageIndex] {
        self.beneath.as_ref().map_or(&[], |beneath| &beneath.layers)
    }

    /// The index that has been made here, and the layers beneath.
    fn all(&self) -> impl Iterator<Item = &PageIndex> {
        std::iter::once(&self.here).chain(self.layers())
    }

    /// Pages in the index.
    pub(crate) fn len(&self) -> usize {
        self.all().map(PageIndex::len).sum()
    }

    /// The frame that has `page`, wherever that is.
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

    /// The frame that has `page`, which is going to be used: from now on it is here.
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

    /// All frames, in no order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.all().flat_map(PageIndex::frames)
    }

    /// All pages, each with its frame and whether it is dirty, in no order.
    pub(crate) fn pages(&self, pool: &FramePool) -> impl Iterator<Item = CachedPage> {
        self.all().flat_map(|index| index.pages(pool))
    }

    /// The pages of one of `parts` stripes.
    pub(crate) fn part(&self, pool: &FramePool, part: usize, parts: usize) -> Vec<CachedPage> {
        let mut pages = self.here.part(pool, part, parts);
        self.layers().iter().for_each(|layer| pages.extend(layer.part(pool, part, parts)));
        pages
    }

    /// Makes room for `more` pages.
    pub(crate) fn reserve(&mut self, pool: &FramePool, more: usize) {
        self.here.reserve(pool, more);
    }

    /// Adds `frame` under the page in its descriptor, which must not be here yet.
    pub(crate) fn insert(&mut self, pool: &FramePool, frame: Frame) {
        debug_assert!(self.get(pool, pool.page(frame)).is_none(), "a page is in one place");
        self.here.insert(pool, frame);
    }

    /// Takes `page` out, dirty or not; the frame that had it.
    pub(crate) fn remove(&mut self, pool: &FramePool, page: u64) -> Option<Frame> {
        self.demand(pool, page)?;
        self.here.remove(pool, page).map(|found| found.frame)
    }

    /// The page has been demanded.
    pub(crate) fn mark_dirty(&mut self, page: u64) {
        self.here.mark_dirty(page);
    }

    /// The page has been demanded.
    pub(crate) fn mark_clean(&mut self, page: u64) {
        self.here.mark_clean(page);
    }

    /// Dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.all().map(PageIndex::dirty).sum()
    }

    /// The first dirty page among `pages`.
    pub(crate) fn first_dirty(&self, pages: &RangeInclusive<u64>) -> Option<u64> {
        self.all().filter_map(|index| index.first_dirty(pages)).min()
    }

    pub(crate) fn last_dirty(&self) -> Option<u64> {
        self.all().filter_map(PageIndex::last_dirty).max()
    }

    /// Moves `most` pages here that nobody has needed yet; how many there were.
    pub(crate) fn drain(&mut self, pool: &FramePool, most: usize) -> usize {
        let Some(beneath) = &mut self.beneath else { return 0 };
        let left = beneath.len();
        if most > 0 && beneath.by_drain == 0 {
            // All at once, instead of again and again while the table grows.
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

    /// How far it is.
    pub(crate) fn moved(&self) -> Moved {
        let Some(beneath) = &self.beneath else { return Moved::default() };
        let Beneath { on_demand, by_drain, .. } = **beneath;
        Moved { left: beneath.len() as u64, on_demand, by_drain }
    }

    /// The stripes of each layer, the index that has been made here first, for another cache to take over.
    pub(crate) fn share(&self) -> Vec<Layer> {
        self.all().map(PageIndex::share).collect()
    }

    /// Takes over, by reference, the stripes of another cache that are to be under this lock.
    pub(crate) fn adopt(&mut self, stripes: Layer) {
        debug_assert_eq!(self.len(), 0, "an index with pages takes no others");
        self.here = self.here.adopted(stripes);
    }

    /// Takes over, lazily, one more layer of stripes that are to be under this lock.
    pub(crate) fn adopt_beneath(&mut self, stripes: Layer) {
        let layer = self.here.adopted(stripes);
        let beneath = self.beneath.get_or_insert_default();
        beneath.layers.push(layer);
        beneath.full += 1;
    }

    /// Forgets everything: another cache has it.
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
