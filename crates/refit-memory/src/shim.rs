//! Stand-ins for the references that the object system generates, until it is there.

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::fcm::{CacheError, CacheStats, Evicted, FileCache};
use crate::fr::FileRepresentative;
use crate::frames::Frame;
use crate::pm::{MemoryStats, PhysicalMemory};

type Registry<T> = LazyLock<RwLock<Vec<Arc<T>>>>;

macro_rules! reference {
    ($name:ident, $trait:ident, $registry:ident, $( fn $method:ident(&self $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?; )*) => {
        static $registry: Registry<dyn $trait + Send + Sync> = LazyLock::new(Default::default);
        /// A reference to an object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(u64);
        impl $name {
            /// Registers an object.
            pub fn new(object: Arc<dyn $trait + Send + Sync>) -> Self {
                let mut objects = $registry.write().unwrap_or_else(PoisonError::into_inner);
                objects.push(object);
                Self(objects.len() as u64)
            }
            fn object(self) -> Arc<dyn $trait + Send + Sync> {
                let objects = $registry.read().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(&objects[self.0 as usize - 1])
            }
            #[expect(dead_code, reason = "not every kind is stored")]
            pub(crate) fn to_word(self) -> u64 {
                self.0
            }
            #[expect(dead_code, reason = "not every kind is stored")]
            pub(crate) fn from_word(word: u64) -> Option<Self> {
                (word != 0).then_some(Self(word))
            }
            $(
                #[doc = stringify!($method)]
                pub fn $method(&self $(, $arg: $ty)*) $(-> $ret)? {
                    self.object().$method($($arg),*)
                }
            )*
        }
    };
}

reference! { FileCacheRef, FileCache, CACHES,
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError>;
    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError>;
    fn truncate(&self, size: u64) -> Result<(), CacheError>;
    fn size(&self) -> u64;
    fn is_dirty(&self) -> bool;
    fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError>;
    fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError>;
    fn evict(&self, page: u64, frame: Frame) -> Result<Evicted, CacheError>;
    fn discard(&self);
    fn stats(&self) -> CacheStats;
}

reference! { FileRepresentativeRef, FileRepresentative, FILES,
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32>;
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32>;
    fn truncate(&self, size: u64) -> Result<(), i32>;
    fn size(&self) -> Result<u64, i32>;
    fn sync(&self, data_only: bool) -> Result<(), i32>;
}

reference! { PhysicalMemoryRef, PhysicalMemory, MEMORIES,
    fn allocate(&self, owner: FileCacheRef, page: u64) -> Option<Frame>;
    fn free(&self, frame: Frame);
    fn touch(&self, frame: Frame);
    fn reclaim(&self, wanted: usize) -> usize;
    fn stats(&self) -> MemoryStats;
}

pub(crate) trait Root: Send + Sync {
    fn make_rep(&self, cpu: usize) -> Arc<dyn FileCache + Send + Sync>;
    fn export(&self) -> crate::CacheState;
    fn import(&self, state: crate::CacheState);
}

type Rep = Arc<dyn FileCache + Send + Sync>;
struct Swappable {
    caches: crate::factory::FileCaches,
    current: RwLock<(Box<dyn Root>, [Rep; 2])>,
}

static SWAPPABLE: LazyLock<RwLock<std::collections::HashMap<u64, Arc<Swappable>>>> =
    LazyLock::new(Default::default);

pub(crate) fn create(root: Box<dyn Root>, caches: crate::factory::FileCaches) -> FileCacheRef {
    let reps = [root.make_rep(0), root.make_rep(1)];
    let swappable = Arc::new(Swappable { caches, current: RwLock::new((root, reps)) });
    let cache = FileCacheRef::new(swappable.clone());
    SWAPPABLE.write().unwrap_or_else(PoisonError::into_inner).insert(cache.0, swappable);
    cache
}

/// Swaps a cache.
pub fn swap(cache: FileCacheRef, to: &str) {
    let swappable = Arc::clone(
        &SWAPPABLE.read().unwrap_or_else(PoisonError::into_inner)[&cache.0],
    );
    let mut current = swappable.current.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(root) = swappable.caches.root(to) {
        root.import(current.0.export());
        let reps = [root.make_rep(0), root.make_rep(1)];
        *current = (root, reps);
    }
}

thread_local! {
    static CPU: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Swappable {
    fn rep<R>(&self, f: impl FnOnce(&Rep) -> R) -> R {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let cpu = CPU.get();
        CPU.set(1 - cpu);
        f(&current.1[cpu])
    }
}

impl FileCache for Swappable {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError> {
        self.rep(|rep| rep.read(offset, buf))
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError> {
        self.rep(|rep| rep.write(offset, data))
    }
    fn truncate(&self, size: u64) -> Result<(), CacheError> {
        self.rep(|rep| rep.truncate(size))
    }
    fn size(&self) -> u64 {
        self.rep(|rep| rep.size())
    }
    fn is_dirty(&self) -> bool {
        self.rep(|rep| rep.is_dirty())
    }
    fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError> {
        self.rep(|rep| rep.flush(start, end))
    }
    fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError> {
        self.rep(|rep| rep.invalidate(start, end))
    }
    fn evict(&self, page: u64, frame: Frame) -> Result<Evicted, CacheError> {
        self.rep(|rep| rep.evict(page, frame))
    }
    fn discard(&self) {
        self.rep(|rep| rep.discard());
    }
    fn stats(&self) -> CacheStats {
        self.rep(|rep| rep.stats())
    }
}
