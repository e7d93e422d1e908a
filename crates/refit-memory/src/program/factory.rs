//! Creating caches of anonymous memory as clustered objects.

use std::sync::Arc;

use refit_objects::{
    CreateError, Factory, Implementations, Import, Interface, Name, OwnedRep, Root, TransferError,
};

use super::budget::BudgetInterface;
use super::cache::{AnonymousParts, Cache, Rep};
use super::fcm::{
    AnonymousCache, AnonymousCacheInterface, AnonymousCacheRef, AnonymousState, AnonymousStats,
};
use super::lists::{Newest, Order, TwoQueues};
use crate::fr::FileRepresentativeInterface;

/// The root of a cache.
struct CacheRoot<O>(Arc<Cache<O>>);

impl<O: Order> Root<AnonymousCacheInterface> for CacheRoot<O>
where
    Rep<O>: AnonymousCache,
{
    fn implementation(&self) -> &str {
        self.0.name
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<AnonymousCacheInterface> {
        AnonymousCacheInterface::rep(Rep(Arc::clone(&self.0)))
    }

    fn export(&self) -> Result<AnonymousState, TransferError> {
        let mut stats = Rep(Arc::clone(&self.0)).stats();
        stats.resident = 0;
        Ok(AnonymousState { pages: self.0.pages(), stats })
    }

    fn import(&self, state: AnonymousState) -> Result<(), TransferError> {
        self.0.put(state.pages);
        Cache::lock(&self.0.cells[0]).stats = state.stats;
        Ok(())
    }

    fn transfers_promptly(&self) -> bool {
        true
    }

    fn imports(&self) -> Vec<Import> {
        let fr = Import { port: "fr", object: FileRepresentativeInterface::id(self.0.parts.fr) };
        let budget = Import { port: "budget", object: BudgetInterface::id(self.0.parts.budget) };
        vec![budget, fr]
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let AnonymousStats { resident, faults, around, evictions, returns } =
            Rep(Arc::clone(&self.0)).stats();
        vec![
            ("resident", resident),
            ("faults", faults),
            ("around", around),
            ("evictions", evictions),
            ("returns", returns),
        ]
    }
}

/// One lock. Pages that return soon after they had left stay longer.
pub const SHARED: &str = "shared";
/// A lock for each processor, over which groups of pages are distributed; the order of `shared`.
pub const PARTITIONED: &str = "partitioned";
/// One lock. The pages that came last are evicted first.
pub const SEQUENTIAL: &str = "sequential";

struct Caches(AnonymousParts);

impl Implementations<AnonymousCacheInterface> for Caches {
    fn names(&self) -> Vec<&'static str> {
        vec![SHARED, PARTITIONED, SEQUENTIAL]
    }

    fn root(&self, name: &str) -> Option<Box<dyn Root<AnonymousCacheInterface>>> {
        let parts = self.0;
        let processors = refit_sys::processor::count();
        Some(match name {
            SHARED => boxed(Cache::<TwoQueues>::new(SHARED, parts, 1)),
            PARTITIONED => boxed(Cache::<TwoQueues>::new(PARTITIONED, parts, processors)),
            SEQUENTIAL => boxed(Cache::<Newest>::new(SEQUENTIAL, parts, 1)),
            _ => return None,
        })
    }
}

fn boxed<O: Order>(cache: Cache<O>) -> Box<dyn Root<AnonymousCacheInterface>> {
    Box::new(CacheRoot(Arc::new(cache)))
}

/// Creates caches of anonymous memory. There is one factory for each tree of programs.
pub type AnonymousCacheFactory = Factory<AnonymousCacheInterface>;

/// Creates the cache of a region, with the default implementation of the class.
///
/// # Errors
/// There is no such implementation.
pub fn create_anonymous_cache(
    factory: &AnonymousCacheFactory,
    name: impl Into<Name>,
    parts: AnonymousParts,
) -> Result<AnonymousCacheRef, CreateError> {
    factory.create(name, Arc::new(Caches(parts)), None)
}
