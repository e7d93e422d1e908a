//! Making file caches and physical memory as clustered objects, and unmaking them.

use std::sync::{Arc, OnceLock};

use refit_objects::{
    CreateError, Factory, Implementations, Import, Interface, Name, OwnedRep, Root, TransferError,
};

use crate::fcm::{CacheState, FileCacheInterface, FileCacheRef};
use crate::fr::FileRepresentativeRef;
use crate::frames::FramePool;
use crate::partitioned::PartitionedCache;
use crate::pm::{MemoryState, PhysicalMemoryInterface, PhysicalMemoryRef};
use crate::policy::ReplacementPolicyRef;
use crate::root::{Cache, CacheRoot};
use crate::shared::SharedCache;
use crate::sweep::{SweepMemory, SweepRep};

/// What a file cache stands on.
#[derive(Clone, Debug)]
pub struct CacheParts {
    /// Where it gets frames.
    pub pm: PhysicalMemoryRef,
    /// The memory of the frames; the same pool that `pm` hands out.
    pub frames: Arc<FramePool>,
    /// The file that it caches.
    pub fr: FileRepresentativeRef,
}

impl CacheParts {
    pub(crate) fn imports(&self) -> Vec<Import> {
        let fr = Import { port: "fr", object: self.fr.id() };
        let pm = Import { port: "pm", object: self.pm.id() };
        vec![fr, pm]
    }
}

/// Makes file caches; there is one for each set of files that belong together, say a mount.
pub type FileCacheFactory = Factory<FileCacheInterface>;

/// Keeps pages, or gives them up behind a reader.
type Keeping = SharedCache<true>;
type Passing = SharedCache<false>;

const NAMES: [&str; 3] = [Keeping::NAME, PartitionedCache::NAME, Passing::NAME];

/// What one file's cache can be swapped to.
#[derive(Debug)]
struct FileCaches {
    parts: CacheParts,
    /// The object, once it has been made: frames are allocated in its name.
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
            Keeping::NAME => boxed(Keeping::new(parts, owner, processors)),
            Passing::NAME => boxed(Passing::new(parts, owner, processors)),
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

/// What physical memory can be swapped to.
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

/// Makes the cache of a file that has `size` bytes on the host, of the implementation that serves the class.
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

/// Frees the frames of a file cache without writing them, and destroys the object. What is dirty and
/// still wanted is to be flushed before. Calls that are inside end in peace; nobody calls it any more.
///
/// Waits for an eviction that is under way: a thread that reclaims holds references to caches whose
/// pages it has seen, and a call to a destroyed object is a panic.
pub fn destroy_file_cache(cache: FileCacheRef, frames: &FramePool) {
    cache.discard();
    // No frame names the cache any more. Who found it in one before is done with it after this.
    frames.wait_for_visitors();
    refit_objects::destroy(FileCacheInterface::id(cache));
}

/// Makes physical memory that hands out `frames`, and asks `policy` which to take back.
pub fn create_physical_memory(
    name: impl Into<Name>,
    frames: Arc<FramePool>,
    policy: ReplacementPolicyRef,
) -> PhysicalMemoryRef {
    let root = SweepRoot(Arc::new(SweepMemory::new(Arc::clone(&frames), policy)));
    refit_objects::create(name, Box::new(root), Arc::new(Memories { frames, policy }))
}
