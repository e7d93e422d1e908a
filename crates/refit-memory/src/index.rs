//! Which pages of a file are here, in which frames, and which are dirty; made so that a swap can hand it
//! over at once, however many pages there are.
//!
//! The index is cut into *stripes*: the file's ranges of [`RANGE_PAGES`] pages are dealt out to them in
//! turn. A cache with a lock per partition keeps one stripe under each lock, a cache with one lock keeps
//! all of them under it. Both cut alike, so a swap from one to the other moves no entry: the stripes are
//! reference-counted, the old cache exports its references and the new one takes them as they are.
//!
//! * *Export does not consume.* Until the swap is committed the old cache has its stripes too and can
//!   carry on. Who changes a stripe that someone else has copies it first ([`Arc::make_mut`]); in
//!   practice nobody has to, since nobody is inside while two caches share, and the loser of a swap
//!   [lets go](PageIndex::clear) before calls go on.
//! * *Small files have one stripe*, which is dealt out to several when it has [`DEAL_AT`] pages. So a
//!   small file costs no more than it must, and the most that a swap ever deals out is `DEAL_AT` pages.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::fcm::CachedPage;
use crate::frames::{Frame, FramePool};
use crate::table::PageTable;

/// Pages of a range: 256 KiB, so that most requests stay within one.
pub(crate) const RANGE_PAGES: u64 = 64;

/// Pages that one stripe of several may be made of: about 20 µs of work.
const DEAL_AT: usize = 512;

/// Which of `stripes` a page belongs to.
pub(crate) fn stripe_of(page: u64, stripes: usize) -> usize {
    (page / RANGE_PAGES % stripes as u64) as usize
}

/// The pages of some ranges of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stripe {
    table: PageTable,
    dirty: BTreeSet<u64>,
}

/// The stripes of an index, for another cache to take over.
pub(crate) type Layer = Vec<Arc<Stripe>>;

/// Where in an index a frame stands: number of the stripe, and slot in its table.
pub(crate) type Spot = (usize, usize);

/// The pages that one lock protects.
#[derive(Debug)]
pub(crate) struct PageIndex {
    /// One at least.
    stripes: Layer,
    /// Stripes that a single one is dealt out to when it grows; 1: it is one of several already.
    spread: usize,
}

impl Default for PageIndex {
    fn default() -> Self {
        Self::new(1)
    }
}

impl PageIndex {
    /// An empty index that is to be cut into `spread` stripes when it has grown.
    pub(crate) fn new(spread: usize) -> Self {
        PageIndex { stripes: vec![Arc::default()], spread }
    }

    /// Pages in the index.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.table.len()).sum()
    }

    /// The frame that has `page`.
    #[inline]
    pub(crate) fn get(&self, pool: &FramePool, page: u64) -> Option<Frame> {
        self.stripe(page).table.get(pool, page)
    }

    /// All frames, in no order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.stripes.iter().flat_map(|stripe| stripe.table.frames())
    }

    /// All pages, each with its frame and whether it is dirty, in no order.
    pub(crate) fn pages(&self, pool: &FramePool) -> impl Iterator<Item = CachedPage> {
        self.stripes.iter().flat_map(move |stripe| pages_of(stripe, pool))
    }

    /// The pages of one of `parts` stripes, whether the index is cut into as many or not.
    pub(crate) fn part(&self, pool: &FramePool, part: usize, parts: usize) -> Vec<CachedPage> {
        if self.stripes.len() == parts {
            return pages_of(&self.stripes[part], pool).collect();
        }
        self.pages(pool).filter(|cached| stripe_of(cached.page, parts) == part).collect()
    }

    /// Makes room for `more` pages.
    pub(crate) fn reserve(&mut self, pool: &FramePool, more: usize) {
        if more >= DEAL_AT && self.stripes.len() < self.spread {
            self.stripes = deal(&self.stripes, pool, self.spread);
        }
        let share = more / self.stripes.len();
        for stripe in self.stripes.iter_mut().filter(|_| share > 0) {
            Arc::make_mut(stripe).table.reserve(pool, share);
        }
    }

    /// Adds `frame` under the page in its descriptor, which must not be here yet.
    pub(crate) fn insert(&mut self, pool: &FramePool, frame: Frame) {
        if self.stripes.len() < self.spread && self.len() >= DEAL_AT {
            self.stripes = deal(&self.stripes, pool, self.spread);
        }
        self.stripe_mut(pool.page(frame)).table.insert(pool, frame);
    }

    /// Takes `page` out, dirty or not.
    pub(crate) fn remove(&mut self, pool: &FramePool, page: u64) -> Option<CachedPage> {
        let stripe = self.stripe_mut(page);
        let dirty = stripe.dirty.remove(&page);
        stripe.table.remove(pool, page).map(|frame| CachedPage { page, frame, dirty })
    }

    /// The first frame at or behind `from`, and where it stands: to visit all frames in turn. Whatever is taken out
    /// meanwhile can let others go back to where the visitor has been.
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

    /// Dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.dirty.len()).sum()
    }

    /// The first dirty page among `pages`.
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

    /// The stripes, for another cache to take over.
    pub(crate) fn share(&self) -> Layer {
        self.stripes.clone()
    }

    /// The stripes of another cache that are to be under this lock, one at least.
    pub(crate) fn adopted(&self, stripes: Layer) -> Self {
        debug_assert!(!stripes.is_empty(), "an index has a stripe");
        PageIndex { stripes, spread: self.spread }
    }

    /// Another index, empty, of what is to be cut like this one.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.spread)
    }

    fn stripe(&self, page: u64) -> &Stripe {
        match &self.stripes[..] {
            // Most files are small; the division is worth avoiding.
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

/// Deals the pages of some stripes, which have all pages between them, out to `wanted` others; as they
/// are if that is their number.
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
