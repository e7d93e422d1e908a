//! Creating and destroying file caches and physical memory as clustered objects.

use std::sync::{Arc, OnceLock};

use refit_objects::{
    CreateError, Factory, Implementations, Import, Interface, Name, OwnedRep, Root, TransferError,
};

use crate::fcm::{CacheState, FileCacheInterface, FileCacheRef};
use crate::frames::FramePool;
use crate::partitioned::PartitionedCache;
use crate::parts::CacheParts;
use crate::pm::{MemoryState, PhysicalMemoryInterface, PhysicalMemoryRef};
use crate::policy::ReplacementPolicyRef;
use crate::root::{Cache, CacheRoot};
use crate::shared::SharedCache;
use crate::sweep::{SweepMemory, SweepRep};

/// Creates file caches. There is one factory for each set of files that belong together, such as a
/// mount.
pub type FileCacheFactory = Factory<FileCacheInterface>;

/// The two variants of [`SharedCache`]: one keeps pages that have been read, the other drops them
/// behind a reader.
type KeepingCache = SharedCache<true>;
type SequentialCache = SharedCache<false>;

const NAMES: [&str; 3] = [KeepingCache::NAME, PartitionedCache::NAME, SequentialCache::NAME];

/// The implementations that one file's cache can be swapped to.
#[derive(Debug)]
struct FileCaches {
    parts: CacheParts,
    /// The object, once it has been created: frames are allocated in its name.
    owner: Arc<OnceLock<FileCacheRef>>,
}

impl Implementations<FileCacheInterface> for FileCaches {
    fn names(&self) -> Vec<&'static str> {
        NAMES.to_vec()
    }

    fn root(&self, name: &str) -> Option<Box<dyn Root<FileCacheInterface>>> {
        let (parts, owner) = (self.parts.clone(), Arc::clone(&self.owner));
        let processors = refit_sys::processor::count();
        match name {
            KeepingCache::NAME => boxed(KeepingCache::new(parts, owner, processors)),
            SequentialCache::NAME => boxed(SequentialCache::new(parts, owner, processors)),
            PartitionedCache::NAME => boxed(PartitionedCache::new(parts, owner, processors)),
            _ => None,
        }
    }
}

fn boxed<C>(cache: C) -> Option<Box<dyn Root<FileCacheInterface>>>
where
    CacheRoot<C>: Root<FileCacheInterface> + 'static,
{
    Some(Box::new(CacheRoot(Arc::new(cache))))
}

struct SweepRoot(Arc<SweepMemory>);

impl Root<PhysicalMemoryInterface> for SweepRoot {
    fn implementation(&self) -> &str {
        SWEEP
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<PhysicalMemoryInterface> {
        PhysicalMemoryInterface::rep(SweepRep(Arc::clone(&self.0)))
    }

    fn export(&self) -> Result<MemoryState, TransferError> {
        Ok(self.0.export())
    }

    fn import(&self, state: MemoryState) -> Result<(), TransferError> {
        self.0.import(&state);
        Ok(())
    }

    fn transfers_promptly(&self) -> bool {
        true
    }

    fn imports(&self) -> Vec<Import> {
        vec![Import { port: "policy", object: self.0.policy.id() }]
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let stats = self.0.stats();
        vec![
            ("total", stats.total),
            ("free", stats.free),
            ("dirty", stats.dirty),
            ("evictions", stats.evictions),
            ("write_backs", stats.write_backs),
        ]
    }
}

const SWEEP: &str = "sweep";

/// The implementations that physical memory can be swapped to.
struct Memories {
    frames: Arc<FramePool>,
    policy: ReplacementPolicyRef,
}

impl Implementations<PhysicalMemoryInterface> for Memories {
    fn names(&self) -> Vec<&'static str> {
        vec![SWEEP]
    }

    fn root(&self, name: &str) -> Option<Box<dyn Root<PhysicalMemoryInterface>>> {
        let memory = || SweepMemory::new(Arc::clone(&self.frames), self.policy);
        (name == SWEEP).then(|| Box::new(SweepRoot(Arc::new(memory()))) as _)
    }
}

/// Creates the cache of a file that has `size` bytes on the host, with the default implementation
/// of the class.
///
/// # Errors
/// There is no such implementation.
pub fn create_file_cache(
    factory: &FileCacheFactory,
    name: impl Into<Name>,
    parts: CacheParts,
    size: u64,
) -> Result<FileCacheRef, CreateError> {
    let caches = FileCaches { parts, owner: Arc::default() };
    let owner = Arc::clone(&caches.owner);
    let empty = CacheState { size, ..CacheState::default() };
    let cache = factory.create(name, Arc::new(caches), Some(empty))?;
    Ok(*owner.get_or_init(|| cache))
}

/// Frees the frames of a file cache without writing them, and destroys the object. Dirty pages that
/// are still needed have to be flushed before. Calls in progress may finish; no new ones may be
/// made.
///
/// Waits for an eviction that is in progress: a thread that reclaims holds references to caches
/// whose pages it has seen, and a call to a destroyed object panics.
pub fn destroy_file_cache(cache: FileCacheRef, frames: &FramePool) {
    cache.discard();
    // No frame names the cache any more. Visitors that found it before are done with it after this.
    frames.wait_for_visitors();
    refit_objects::destroy(FileCacheInterface::id(cache));
}

/// Creates physical memory that allocates from `frames`, and asks `policy` which frames to reclaim.
pub fn create_physical_memory(
    name: impl Into<Name>,
    frames: Arc<FramePool>,
    policy: ReplacementPolicyRef,
) -> PhysicalMemoryRef {
    let root = SweepRoot(Arc::new(SweepMemory::new(Arc::clone(&frames), policy)));
    refit_objects::create(name, Box::new(root), Arc::new(Memories { frames, policy }))
}
