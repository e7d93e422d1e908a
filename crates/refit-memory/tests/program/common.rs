//! A cache of anonymous memory over a store, and the helpers of its tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_memory::program::{
    AnonymousCacheFactory, AnonymousCacheInterface, AnonymousCacheRef, AnonymousParts,
    BudgetInterface, BudgetRef, Commons, PARTITIONED, SEQUENTIAL, SHARED, create_anonymous_cache,
    create_budget,
};
use refit_memory::store::{PageStore, SwapFile};
use refit_memory::{AnonymousPages, FileRepresentativeInterface, FileRepresentativeRef, PAGE_SIZE};
use refit_objects::{Interface, ObjectId, SwapOptions, destroy};

pub(crate) const IMPLEMENTATIONS: [&str; 3] = [SHARED, PARTITIONED, SEQUENTIAL];
pub(crate) use refit_sys::memory::PAGE_SIZE_U64;
/// A timeout that is reached only if the test fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The contents of a page as the tests see them: a number in each of its words except the last.
/// Pages of odd numbers do not compress.
pub(crate) type Contents = u64;

pub(crate) fn page_of(contents: Contents) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    let mut word = contents;
    for bytes in page.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        if contents % 2 == 1 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(contents);
        }
    }
    page
}

/// Returns the number that a whole page contains.
pub(crate) fn contents_of(page: &[u8]) -> Contents {
    let contents = u64::from_le_bytes(page[..8].try_into().expect("eight bytes"));
    assert!(page == page_of(contents), "a page of which only part is {contents}");
    contents
}

/// A cache and the objects below it.
pub(crate) struct Subject {
    pub(crate) store: Arc<PageStore>,
    pub(crate) budget: BudgetRef,
    pub(crate) behind: AnonymousPages,
    fr: FileRepresentativeRef,
    pub(crate) cache: AnonymousCacheRef,
}

impl Subject {
    pub(crate) fn new(implementation: &str, frames: u64, store: Arc<PageStore>) -> Self {
        let behind = AnonymousPages::new(Arc::clone(&store), i64::MAX as u64);
        let (fr, budget) = (behind.representative("test"), create_budget("test", frames));
        let factory = AnonymousCacheFactory::new("test", implementation);
        let parts = AnonymousParts { budget, fr };
        let cache = create_anonymous_cache(&factory, "test", parts).expect("it is built in");
        Self { store, budget, behind, fr, cache }
    }

    /// Creates another cache on the same budget, over pages of its own that were split off.
    pub(crate) fn apart(&self, implementation: &str, behind: AnonymousPages) -> Self {
        let fr = behind.representative("apart");
        let factory = AnonymousCacheFactory::new("test", implementation);
        let parts = AnonymousParts { budget: self.budget, fr };
        let cache = create_anonymous_cache(&factory, "apart", parts).expect("it is built in");
        Self { store: Arc::clone(&self.store), budget: self.budget, behind, fr, cache }
    }

    /// Forgets all pages and destroys the cache, but not the budget.
    pub(crate) fn end(self) {
        self.cache.forget(0, u64::MAX / PAGE_SIZE_U64);
        destroy(AnonymousCacheInterface::id(self.cache));
        destroy(FileRepresentativeInterface::id(self.fr));
    }

    /// Destroys everything and checks that nothing is left.
    pub(crate) fn end_all(self) {
        let (store, budget) = (Arc::clone(&self.store), self.budget);
        self.end();
        assert_eq!(budget.stats().taken, 0, "frames that nobody has");
        assert_eq!(store.stats(), refit_memory::store::StoreStats::default());
        destroy(BudgetInterface::id(budget));
    }
}

pub(crate) fn swap(object: ObjectId, to: &str) {
    let options = SwapOptions { deadline: LONG, ..SwapOptions::default() };
    let report = refit_objects::swap_named(object, to, 0, &options);
    assert!(report.committed(), "{report:?}");
}

/// Returns a store of compressed pages, one of a file, or one of both.
pub(crate) fn store(which: usize) -> Arc<PageStore> {
    let file = || Some(SwapFile::new(tempfile::tempfile().expect("a file"), 4000 * PAGE_SIZE_U64));
    match which {
        0 => PageStore::new(1 << 30, None),
        1 => PageStore::new(0, file()),
        _ => PageStore::new(6000, file()),
    }
}

/// Creates the objects that address spaces share: `frames` frames, and a store in memory.
pub(crate) fn commons(frames: u64) -> Arc<Commons> {
    Arc::new(Commons {
        budget: create_budget("test", frames),
        store: store(0),
        caches: AnonymousCacheFactory::new("test", SHARED),
    })
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what}: it did not come");
        std::thread::yield_now();
    }
}

/// Pseudo-random numbers, the same in each run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
