//! Tests of anonymous memory larger than its frames: pages are evicted to each kind of store and
//! come back while caches are swapped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use refit_memory::store::{PageStore, StoreError, StoreStats, StoredPage, SwapFile};
use refit_memory::{
    CacheError, CacheParts, FileCacheFactory, FileCacheRef, FramePool, PAGE_SIZE,
    PhysicalMemoryRef, create_anonymous, create_file_cache, create_physical_memory,
    destroy_file_cache, reclaim,
};
use refit_objects::SwapOptions;

use crate::host::{IMPLEMENTATIONS, PAGE_SIZE_U64, policy};

const PAGES: u64 = 300;

/// Anonymous memory of [`PAGES`] over a store, with a limited number of frames.
struct Memory {
    frames: Arc<FramePool>,
    pm: PhysicalMemoryRef,
    cache: FileCacheRef,
    /// The number of times that a call is repeated for lack of frames.
    attempts: usize,
}

impl Memory {
    fn new(implementation: &str, frames: u64, store: &Arc<PageStore>) -> Self {
        let frames = FramePool::new(frames * PAGE_SIZE_U64).expect("memory");
        let pm = create_physical_memory("test", Arc::clone(&frames), policy());
        let fr = create_anonymous("memory", Arc::clone(store), PAGES * PAGE_SIZE_U64);
        let parts = CacheParts { pm, frames: Arc::clone(&frames), fr };
        let factory = FileCacheFactory::new("test", implementation);
        let cache =
            create_file_cache(&factory, "test", parts, PAGES * PAGE_SIZE_U64).expect("a cache");
        Self { frames, pm, cache, attempts: 10_000 }
    }

    fn with_frames<R>(
        &self,
        mut call: impl FnMut(FileCacheRef) -> Result<R, CacheError>,
    ) -> Result<R, CacheError> {
        for _ in 0..self.attempts {
            match call(self.cache) {
                Err(CacheError::NoFrame) if reclaim(self.pm, &self.frames, 8).freed == 0 => {
                    std::thread::yield_now();
                }
                Err(CacheError::NoFrame) => {}
                result => return result,
            }
        }
        Err(CacheError::NoFrame)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<usize, CacheError> {
        self.with_frames(|cache| cache.write(at, data))
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, CacheError> {
        let mut buffer = vec![0xee; length];
        let got = self.with_frames(|cache| cache.read(at, &mut buffer))?;
        assert_eq!(got, length);
        Ok(buffer)
    }

    fn end(self) {
        self.cache.discard();
        destroy_file_cache(self.cache, &self.frames);
    }
}

/// Pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Returns bytes that compress well, that compress badly, or that are zeros.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (kind, first) = (self.below(4), self.below(256) as u8);
        let byte = |n: usize| match kind {
            0 => 0,
            1 => first,
            2 => first.wrapping_add((n / 64) as u8),
            _ => self.below(256) as u8,
        };
        (0..length).map(byte).collect()
    }
}

/// Sets the flag on drop.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn stores() -> Vec<(&'static str, Arc<PageStore>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = || Some(SwapFile::create(folder.path(), 400 * PAGE_SIZE_U64).expect("a file"));
    vec![
        ("compressed", PageStore::new(1 << 30, None)),
        ("file", PageStore::new(0, file())),
        ("compressed, then the file", PageStore::new(20_000, file())),
    ]
}

#[test]
fn memory_is_what_was_written_whatever_the_store() {
    for implementation in IMPLEMENTATIONS {
        for (name, store) in stores() {
            let memory = Memory::new(implementation, 40, &store);
            let mut model = vec![0; (PAGES * PAGE_SIZE_U64) as usize];
            let mut numbers = Numbers(7);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for to in IMPLEMENTATIONS.into_iter().cycle() {
                        if done.load(Relaxed) {
                            break;
                        }
                        let options = SwapOptions {
                            deadline: Duration::from_secs(60),
                            ..SwapOptions::default()
                        };
                        let report = refit_objects::swap_named(memory.cache.id(), to, 0, &options);
                        assert!(report.committed(), "{report:?}");
                    }
                });
                // The other thread ends, too, if this one panics.
                let _end = End(&done);
                for _ in 0..3000 {
                    let length = 1 + numbers.below(5 * PAGE_SIZE_U64);
                    let at = numbers.below(PAGES * PAGE_SIZE_U64 - length);
                    let range = at as usize..(at + length) as usize;
                    if numbers.below(2) == 0 {
                        let bytes = numbers.bytes(length as usize);
                        memory.write(at, &bytes).expect("written");
                        model[range].copy_from_slice(&bytes);
                    } else {
                        let read = memory.read(at, length as usize).expect("read");
                        assert!(read == model[range], "{name}, {implementation}: at {at}");
                    }
                }
            });
            let StoreStats { zeros, compressed, in_file, .. } = store.stats();
            assert!(zeros + compressed + in_file > 0, "{name}: nothing went there");
            memory.end();
        }
    }
}

#[test]
fn a_store_that_is_full_or_fails_loses_nothing() {
    let full = File::options().read(true).write(true).open("/dev/full").expect("Linux");
    let folder = tempfile::tempdir().expect("a folder");
    let small = SwapFile::create(folder.path(), 20 * PAGE_SIZE_U64).expect("a file");
    for file in [SwapFile::new(full, 400 * PAGE_SIZE_U64), small] {
        let store = PageStore::new(0, Some(file));
        let memory = Memory { attempts: 100, ..Memory::new("shared", 40, &store) };
        let mut numbers = Numbers(3);
        let mut written = Vec::new();
        let refused = loop {
            let bytes: Vec<u8> = (0..PAGE_SIZE).map(|_| 1 + numbers.below(255) as u8).collect();
            match memory.write(written.len() as u64 * PAGE_SIZE_U64, &bytes) {
                Ok(_) => written.push(bytes),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, CacheError::NoFrame), "{refused}");
        assert!(written.len() >= 38, "{}", written.len());
        for (page, bytes) in (0..).zip(&written) {
            // Resident pages can be read; a page that has to be read back needs a frame, and no
            // page can be evicted.
            match memory.cache.read(page * PAGE_SIZE_U64, &mut vec![0; PAGE_SIZE]) {
                Ok(_) => {
                    assert!(memory.read(page * PAGE_SIZE_U64, PAGE_SIZE).expect("read") == *bytes)
                }
                Err(error) => assert!(matches!(error, CacheError::NoFrame), "{error}"),
            }
        }
        memory.end();
    }
}

#[test]
fn what_a_disk_has_changed_is_told_and_nothing_is_left() {
    let file = tempfile::tempfile().expect("a file");
    let store = PageStore::new(
        0,
        Some(SwapFile::new(file.try_clone().expect("a file"), 8 * PAGE_SIZE_U64)),
    );
    let pages: Vec<u8> = (0..3 * PAGE_SIZE).map(|n| (n / 1000) as u8).collect();
    let stored: Vec<_> = store.put(&pages).expect("put").into_iter().map(Arc::new).collect();
    let mut read = vec![0; pages.len()];
    StoredPage::read(&stored, &mut read).expect("read");
    assert!(read == pages);
    file.write_all_at(&[0xff], PAGE_SIZE_U64 + 5).expect("written");
    let changed = StoredPage::read(&stored, &mut read).expect_err("it is told");
    assert!(matches!(changed, StoreError::Changed { at: PAGE_SIZE_U64 }), "{changed}");
    StoredPage::read(&stored[2..], &mut read[..PAGE_SIZE]).expect("the others are what they were");
    let too_many = store.put(&vec![7; 6 * PAGE_SIZE]).expect_err("no room");
    assert!(
        matches!(too_many, StoreError::Full { bytes } if bytes == 8 * PAGE_SIZE_U64),
        "{too_many}"
    );
    drop(stored);
    assert_eq!(store.stats(), StoreStats::default());
    assert_eq!(store.put(&vec![7; 8 * PAGE_SIZE]).expect("room").len(), 8);
}
