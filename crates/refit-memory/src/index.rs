//! The index of a file's cached pages: their frames, and which are dirty. A swap can hand it over
//! at once, however many pages there are.
//!
//! The index is divided into *stripes*, to which the file's ranges of [`RANGE_PAGES`] pages are
//! assigned in turn. A cache with a lock per partition keeps one stripe under each lock; a cache
//! with one lock keeps all of them under it. Both divide alike, so a swap from one to the other
//! moves no entry: the stripes are reference-counted, the old cache exports its references and the
//! new one takes them as they are.
//!
//! * *Export does not consume.* Until the swap is committed the old cache has its stripes too and
//!   can continue. A thread that changes a shared stripe copies it first ([`Arc::make_mut`]). In
//!   practice that never happens, since no call is in progress while two caches share stripes, and
//!   the cache that does not serve after the swap [clears](crate::lazy::LazyIndex::clear) its index
//!   before calls continue.
//! * *Small files have one stripe*, which is divided into several when it has [`DEAL_AT`] pages. So
//!   a small file has only one table, and a swap never has to divide more than `DEAL_AT` pages.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::frames::{Frame, FramePool};
use crate::table::PageTable;

/// Pages of a range: 256 KiB, so that most requests stay within one.
pub(crate) const RANGE_PAGES: u64 = 64;

/// The number of pages at which a single stripe is divided into several: about 20 µs of work.
const DEAL_AT: usize = 512;

/// Returns the stripe, of `stripes`, that a page belongs to.
pub(crate) fn stripe_of(page: u64, stripes: usize) -> usize {
    (page / RANGE_PAGES % stripes as u64) as usize
}

/// A page in the canonical state. Its data stays in the frame when the state is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPage {
    /// The number of the page in the file.
    pub page: u64,
    /// The frame that holds it.
    pub frame: Frame,
    /// Whether it differs from the file.
    pub dirty: bool,
}

/// The pages of some ranges of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stripe {
    table: PageTable,
    dirty: BTreeSet<u64>,
}

/// The stripes of an index, in the form that another cache takes over.
pub(crate) type Layer = Vec<Arc<Stripe>>;

/// The position of a frame in an index: the number of the stripe, and the slot in its table.
pub(crate) type Spot = (usize, usize);

/// The pages that one lock protects.
#[derive(Debug)]
pub(crate) struct PageIndex {
    /// At least one.
    stripes: Layer,
    /// The number of stripes into which a single one is divided when it grows; 1 if it is one of
    /// several already.
    spread: usize,
}

impl Default for PageIndex {
    fn default() -> Self {
        Self::new(1)
    }
}

impl PageIndex {
    /// Creates an empty index, which is divided into `spread` stripes once it has grown.
    pub(crate) fn new(spread: usize) -> Self {
        PageIndex { stripes: vec![Arc::default()], spread }
    }

    /// Returns the number of pages in the index.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.table.len()).sum()
    }

    /// Returns the frame of `page`.
    #[inline]
    pub(crate) fn get(&self, pool: &FramePool, page: u64) -> Option<Frame> {
        self.stripe(page).table.get(pool, page)
    }

    /// Returns all frames, in no particular order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.stripes.iter().flat_map(|stripe| stripe.table.frames())
    }

    /// Returns all pages, each with its frame and whether it is dirty, in no particular order.
    pub(crate) fn pages(&self, pool: &FramePool) -> impl Iterator<Item = CachedPage> {
        self.stripes.iter().flat_map(move |stripe| pages_of(stripe, pool))
    }

    /// Returns the pages of one of `parts` stripes, whether or not the index is divided into that
    /// many.
    pub(crate) fn part(&self, pool: &FramePool, part: usize, parts: usize) -> Vec<CachedPage> {
        if self.stripes.len() == parts {
            return pages_of(&self.stripes[part], pool).collect();
        }
        self.pages(pool).filter(|cached| stripe_of(cached.page, parts) == part).collect()
    }

    /// Reserves room for `more` pages.
    pub(crate) fn reserve(&mut self, pool: &FramePool, more: usize) {
        if more >= DEAL_AT && self.stripes.len() < self.spread {
            self.stripes = deal(&self.stripes, pool, self.spread);
        }
        let share = more / self.stripes.len();
        for stripe in self.stripes.iter_mut().filter(|_| share > 0) {
            Arc::make_mut(stripe).table.reserve(pool, share);
        }
    }

    /// Adds `frame` under the page in its descriptor, which must not be in the index yet.
    pub(crate) fn insert(&mut self, pool: &FramePool, frame: Frame) {
        if self.stripes.len() < self.spread && self.len() >= DEAL_AT {
            self.stripes = deal(&self.stripes, pool, self.spread);
        }
        self.stripe_mut(pool.page(frame)).table.insert(pool, frame);
    }

    /// Removes `page`, dirty or not.
    pub(crate) fn remove(&mut self, pool: &FramePool, page: u64) -> Option<CachedPage> {
        let stripe = self.stripe_mut(page);
        let dirty = stripe.dirty.remove(&page);
        stripe.table.remove(pool, page).map(|frame| CachedPage { page, frame, dirty })
    }

    /// Returns the first frame at or behind `from`, and its position, to visit all frames in turn.
    /// Removals in the meantime can move other frames back to where the visitor has already been.
    pub(crate) fn next_from(&self, from: Spot) -> Option<(Spot, Frame)> {
        let behind = |stripe| if stripe == from.0 { from.1 } else { 0 };
        (from.0..self.stripes.len()).find_map(|stripe| {
            let (slot, frame) = self.stripes[stripe].table.next_from(behind(stripe))?;
            Some(((stripe, slot), frame))
        })
    }

    pub(crate) fn mark_dirty(&mut self, page: u64) {
        self.stripe_mut(page).dirty.insert(page);
    }

    pub(crate) fn mark_clean(&mut self, page: u64) {
        self.stripe_mut(page).dirty.remove(&page);
    }

    /// Returns the number of dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.dirty.len()).sum()
    }

    /// Returns the first dirty page among `pages`.
    pub(crate) fn first_dirty(&self, pages: &RangeInclusive<u64>) -> Option<u64> {
        if pages.is_empty() {
            return None;
        }
        let first = |stripe: &Arc<Stripe>| stripe.dirty.range(pages.clone()).next().copied();
        self.stripes.iter().filter_map(first).min()
    }

    pub(crate) fn last_dirty(&self) -> Option<u64> {
        self.stripes.iter().filter_map(|stripe| stripe.dirty.last().copied()).max()
    }

    /// Returns the stripes, for another cache to take over.
    pub(crate) fn share(&self) -> Layer {
        self.stripes.clone()
    }

    /// Returns an index of stripes of another cache, at least one, for the same lock as this one.
    pub(crate) fn adopted(&self, stripes: Layer) -> Self {
        debug_assert!(!stripes.is_empty(), "an index has a stripe");
        PageIndex { stripes, spread: self.spread }
    }

    /// Returns an empty index that is divided like this one.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.spread)
    }

    fn stripe(&self, page: u64) -> &Stripe {
        match &self.stripes[..] {
            // Most files are small, and the division is worth avoiding.
            [only] => only,
            stripes => &stripes[stripe_of(page, stripes.len())],
        }
    }

    fn stripe_mut(&mut self, page: u64) -> &mut Stripe {
        let stripe = stripe_of(page, self.stripes.len());
        Arc::make_mut(&mut self.stripes[stripe])
    }
}

fn pages_of(stripe: &Stripe, pool: &FramePool) -> impl Iterator<Item = CachedPage> {
    stripe.table.frames().map(move |frame| {
        let page = pool.page(frame);
        CachedPage { page, frame, dirty: stripe.dirty.contains(&page) }
    })
}

/// Divides the pages of these stripes, which together have all pages, into `wanted` others; returns
/// them as they are if that is their number.
pub(crate) fn deal(stripes: &[Arc<Stripe>], pool: &FramePool, wanted: usize) -> Layer {
    if stripes.len() == wanted {
        return stripes.to_vec();
    }
    let pages: usize = stripes.iter().map(|stripe| stripe.table.len()).sum();
    let mut dealt = vec![Stripe::default(); wanted];
    if pages > 0 {
        dealt.iter_mut().for_each(|stripe| stripe.table.reserve(pool, pages / wanted));
    }
    for stripe in stripes {
        for frame in stripe.table.frames() {
            dealt[stripe_of(pool.page(frame), wanted)].table.insert(pool, frame);
        }
        for &page in &stripe.dirty {
            dealt[stripe_of(page, wanted)].dirty.insert(page);
        }
    }
    dealt.into_iter().map(Arc::new).collect()
}
