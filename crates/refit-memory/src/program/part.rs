//! A region of an address space, with its pages and its objects.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use refit_objects::{Interface, destroy, object};
use refit_sys::memory::PAGE_SIZE_U64;

use super::budget::BudgetRef;
use super::cache::AnonymousParts;
use super::factory::{AnonymousCacheFactory, create_anonymous_cache};
use super::fcm::{AnonymousCacheInterface, AnonymousCacheRef};
use super::hat::TranslationRef;
use super::region::{RegionInterface, RegionParts, RegionRef, create_region};
use crate::anonymous::AnonymousPages;
use crate::fr::{FileRepresentativeInterface, FileRepresentativeRef};
use crate::store::{PageStore, StoredPage};
use crate::{CacheError, PAGE_SIZE};

/// The resources that the address spaces of one tree of programs share.
#[derive(Debug)]
pub struct Commons {
    /// The budget that grants frames.
    pub budget: BudgetRef,
    /// The store for pages that are out.
    pub store: Arc<PageStore>,
    /// The factory of caches.
    pub caches: AnonymousCacheFactory,
}

/// A region, its pages and its objects.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    /// The distance in bytes from positions in the cache to addresses.
    pub(super) moved: i64,
    pub(super) pages: AnonymousPages,
    /// The address by which it is named.
    start: u64,
    /// Whether it will be left to the kernel as soon as none of its pages is out.
    leaving: AtomicBool,
    /// Whether the kernel resolves its faults, and reports no changes of it.
    native: AtomicBool,
    /// Created when first needed: most children execute another program before.
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

    /// Returns its objects, in the address space of that name.
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

    /// Returns its cache, if it has one.
    pub(super) fn fcm(&self) -> Option<AnonymousCacheRef> {
        self.objects.get().map(|objects| objects.fcm)
    }

    /// Returns whether it should be served; true for a region without objects.
    pub(super) fn served(&self) -> bool {
        self.objects.get().is_none_or(|objects| objects.region.served())
    }

    /// Stores its pages that are kept, as [`Space::store_kept`](super::space::Space::store_kept)
    /// does.
    pub(super) fn store_kept(&self) -> Result<(), CacheError> {
        let Some(Objects { fr, .. }) = self.objects.get() else { return Ok(()) };
        let mut bytes = vec![0; PAGE_SIZE];
        for (number, page) in self.pages.kept() {
            // It is in memory, so reading it cannot fail.
            if StoredPage::read(&[page], &mut bytes).is_ok() {
                fr.write(number * PAGE_SIZE_U64, &bytes).map_err(CacheError::Host)?;
            }
        }
        Ok(())
    }

    /// Returns the implementations of its region and its cache, if it has any.
    pub(super) fn implementations(&self) -> Option<(String, String)> {
        let Objects { region, fcm, .. } = self.objects.get()?;
        let region = object(RegionInterface::id(*region))?.implementation;
        Some((region, object(AnonymousCacheInterface::id(*fcm))?.implementation))
    }

    /// Decides whether it will be left to the kernel. The decision holds, even if its region is
    /// swapped, until this is called again.
    pub(super) fn decide(&self) -> bool {
        let leaving = !self.is_native() && !self.served();
        self.leaving.store(leaving, Relaxed);
        leaving
    }

    pub(super) fn is_leaving(&self) -> bool {
        // Relaxed, like the other flag: one thread both decides and leaves regions, and no other
        // looks at mappings meanwhile.
        self.leaving.load(Relaxed)
    }

    /// Leaves it to the kernel, which serves it from now on; none of its pages may be out. Its
    /// frames are given back.
    pub(super) fn leave_to_kernel(&self) {
        if let Some(fcm) = self.fcm() {
            fcm.forget(0, u64::MAX / PAGE_SIZE_U64);
        }
        self.leaving.store(false, Relaxed);
        self.native.store(true, Relaxed);
    }

    /// Takes it back from the kernel.
    pub(super) fn resume(&self) {
        self.native.store(false, Relaxed);
    }

    pub(super) fn is_native(&self) -> bool {
        self.native.load(Relaxed)
    }

    /// Forgets the pages of a range.
    pub(super) fn forget(&self, range: &Range<u64>) {
        let pages = self.pages_of(range);
        match self.fcm() {
            Some(fcm) => fcm.forget(pages.start, pages.end),
            None => drop(self.pages.split_off(pages)),
        }
    }

    /// Returns the pages in its cache for a range of addresses.
    pub(super) fn pages_of(&self, range: &Range<u64>) -> Range<u64> {
        let page = |address: u64| address.wrapping_add_signed(-self.moved) / PAGE_SIZE_U64;
        page(range.start)..page(range.end)
    }

    pub(super) fn address(&self, page: u64) -> u64 {
        (page * PAGE_SIZE_U64).wrapping_add_signed(self.moved)
    }
}

/// A part ends with the last range that refers to it.
impl Drop for Part {
    fn drop(&mut self) {
        let Some(Objects { region, fcm, fr }) = self.objects.take() else { return };
        destroy(RegionInterface::id(region));
        fcm.forget(0, u64::MAX / PAGE_SIZE_U64);
        destroy(AnonymousCacheInterface::id(fcm));
        destroy(FileRepresentativeInterface::id(fr));
    }
}
