//! A region of an address space and what it stands on: what is behind it, and its objects.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use refit_objects::{Interface, destroy, object};

use super::budget::BudgetRef;
use super::cache::{AnonymousCacheFactory, AnonymousParts, create_anonymous_cache};
use super::fcm::{AnonymousCacheInterface, AnonymousCacheRef};
use super::hat::TranslationRef;
use super::region::{RegionInterface, RegionParts, RegionRef, create_region};
use crate::PAGE_SIZE;
use crate::anonymous::AnonymousPages;
use crate::fr::{FileRepresentativeInterface, FileRepresentativeRef};
use crate::store::PageStore;

const PAGE: u64 = PAGE_SIZE as u64;

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

/// A region and what it stands on.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    /// By how many bytes addresses are beyond their places in the cache.
    pub(super) moved: i64,
    pub(super) pages: AnonymousPages,
    /// What it is called by among others.
    start: u64,
    /// It is to be the kernel's as soon as nothing of it is out.
    leaving: AtomicBool,
    /// The kernel resolves its faults, and tells of no changes of it.
    native: AtomicBool,
    /// Made when first one is needed: most children become other programs before.
    objects: OnceLock<Objects>,
}

/// The objects of a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects {
    pub(super) region: RegionRef,
    pub(super) fcm: AnonymousCacheRef,
    fr: FileRepresentativeRef,
}

impl Part {
    pub(super) fn new(start: u64, name: &str, moved: i64, pages: AnonymousPages) -> Arc<Self> {
        let (leaving, native) = (AtomicBool::new(false), AtomicBool::new(false));
        let (name, objects) = (name.to_owned(), OnceLock::new());
        Arc::new(Self { name, moved, pages, start, leaving, native, objects })
    }

    /// Its objects in the address space that is called so.
    pub(super) fn objects(&self, space: &str, commons: &Commons, hat: TranslationRef) -> Objects {
        *self.objects.get_or_init(|| {
            let called = format!("{space}/{:x}", self.start);
            let fr = self.pages.representative(called.as_str());
            let parts = AnonymousParts { budget: commons.budget, fr };
            let fcm = create_anonymous_cache(&commons.caches, called.as_str(), parts);
            let fcm = fcm.expect("the class serves with what it was made with");
            let parts = RegionParts { fcm, hat, moved: self.moved };
            Objects { region: create_region(called, parts), fcm, fr }
        })
    }

    /// Its cache, if it has one.
    pub(super) fn fcm(&self) -> Option<AnonymousCacheRef> {
        self.objects.get().map(|objects| objects.fcm)
    }

    /// Whether it is to be served; so is what nobody has said anything of.
    pub(super) fn served(&self) -> bool {
        self.objects.get().is_none_or(|objects| objects.region.served())
    }

    /// By what its region and its cache are served, if there are any.
    pub(super) fn implementations(&self) -> Option<(String, String)> {
        let Objects { region, fcm, .. } = self.objects.get()?;
        let region = object(RegionInterface::id(*region))?.implementation;
        Some((region, object(AnonymousCacheInterface::id(*fcm))?.implementation))
    }

    /// Says once whether it is to be the kernel's: from then on, whoever swaps its region, until this is asked again.
    pub(super) fn decide(&self) -> bool {
        let leaving = !self.is_native() && !self.served();
        self.leaving.store(leaving, Relaxed);
        leaving
    }

    pub(super) fn is_leaving(&self) -> bool {
        // Relaxed, as the other: one thread decides and leaves, and nobody else looks at mappings when it leaves.
        self.leaving.load(Relaxed)
    }

    /// Nothing of it is out, and the kernel serves it from now on: its frames are given back.
    pub(super) fn leave_to_kernel(&self) {
        if let Some(fcm) = self.fcm() {
            fcm.forget(0, u64::MAX / PAGE);
        }
        self.leaving.store(false, Relaxed);
        self.native.store(true, Relaxed);
    }

    /// It is the kernel's no more.
    pub(super) fn resume(&self) {
        self.native.store(false, Relaxed);
    }

    pub(super) fn is_native(&self) -> bool {
        self.native.load(Relaxed)
    }

    /// Forgets what was in a range.
    pub(super) fn forget(&self, range: &Range<u64>) {
        let pages = self.pages_of(range);
        match self.fcm() {
            Some(fcm) => fcm.forget(pages.start, pages.end),
            None => drop(self.pages.split_off(pages)),
        }
    }

    /// The pages in its cache that stand for addresses.
    pub(super) fn pages_of(&self, range: &Range<u64>) -> Range<u64> {
        let page = |address: u64| address.wrapping_add_signed(-self.moved) / PAGE;
        page(range.start)..page(range.end)
    }

    pub(super) fn address(&self, page: u64) -> u64 {
        (page * PAGE).wrapping_add_signed(self.moved)
    }
}

/// It ends with the last place that it has had.
impl Drop for Part {
    fn drop(&mut self) {
        let Some(Objects { region, fcm, fr }) = self.objects.take() else { return };
        destroy(RegionInterface::id(region));
        fcm.forget(0, u64::MAX / PAGE);
        destroy(AnonymousCacheInterface::id(fcm));
        destroy(FileRepresentativeInterface::id(fr));
    }
}
