//! Making file caches and physical memory by name.

use std::sync::{Arc, OnceLock};

use crate::clock::ClockMemory;
use crate::frames::FramePool;
use crate::partitioned::{PartitionedCache, PartitionedRep};
use crate::shared::SharedCache;
use crate::fcm::{CacheState, FileCache};
use crate::shim::{FileCacheRef, Root, FileRepresentativeRef, PhysicalMemoryRef};

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

/// There is no implementation with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a file cache cannot be `{asked}`: there are {}", known.join(", "))]
pub struct UnknownImplementation {
    /// The name that was asked for.
    pub asked: String,
    /// The names there are.
    pub known: Vec<String>,
}

const NAMES: [&str; 2] = ["shared", "partitioned"];

/// What one file's cache can be swapped to.
#[derive(Debug)]
pub(crate) struct FileCaches {
    parts: CacheParts,
    owner: Arc<OnceLock<FileCacheRef>>,
}

impl FileCaches {
    pub(crate) fn names(&self) -> &[&'static str] {
        &NAMES
    }

    pub(crate) fn root(&self, name: &str) -> Option<Box<dyn Root>> {
        self.root_of_size(name, 0)
    }

    fn root_of_size(&self, name: &str, size: u64) -> Option<Box<dyn Root>> {
        let (parts, owner) = (self.parts.clone(), Arc::clone(&self.owner));
        match name {
            "shared" => Some(Box::new(SharedRoot(Arc::new(SharedCache::new(parts, owner, size))))),
            "partitioned" => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                let cache = PartitionedCache::new(parts, owner, size, processors);
                Some(Box::new(PartitionedRoot(Arc::new(cache))))
            }
            _ => None,
        }
    }
}

struct SharedRoot(Arc<SharedCache>);

impl Root for SharedRoot {
    fn make_rep(&self, _cpu: usize) -> Arc<dyn FileCache + Send + Sync> {
        self.0.clone()
    }

    fn export(&self) -> CacheState {
        self.0.export()
    }

    fn import(&self, state: CacheState) {
        self.0.import(&state);
    }
}

struct PartitionedRoot(Arc<PartitionedCache>);

impl Root for PartitionedRoot {
    fn make_rep(&self, cpu: usize) -> Arc<dyn FileCache + Send + Sync> {
        Arc::new(PartitionedRep::new(Arc::clone(&self.0), cpu))
    }

    fn export(&self) -> CacheState {
        self.0.export()
    }

    fn import(&self, state: CacheState) {
        self.0.import(&state);
    }
}

/// Makes the cache of a file that has `size` bytes on the host.
///
/// # Errors
/// There is no implementation of this name.
pub fn create_file_cache(
    _name: String,
    parts: CacheParts,
    implementation: &str,
    size: u64,
) -> Result<FileCacheRef, UnknownImplementation> {
    let caches = FileCaches { parts, owner: Arc::default() };
    let root = caches.root_of_size(implementation, size).ok_or_else(|| UnknownImplementation {
        asked: implementation.to_owned(),
        known: caches.names().iter().map(ToString::to_string).collect(),
    })?;
    let owner = Arc::clone(&caches.owner);
    let cache = crate::shim::create(root, caches);
    Ok(*owner.get_or_init(|| cache))
}

/// Makes physical memory that hands out `frames`.
pub fn create_physical_memory(_name: String, frames: Arc<FramePool>) -> PhysicalMemoryRef {
    PhysicalMemoryRef::new(Arc::new(ClockMemory::new(frames)))
}
