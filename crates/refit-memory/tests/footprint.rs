//! Measures the memory that a cached page costs beyond the page itself, and the memory of an empty
//! cache, counted at the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use refit_memory::{
    CLOCK, CacheParts, DiskWork, FileCacheFactory, FileCacheRef, FileRepresentative,
    FileRepresentativeInterface, FramePool, PAGE_SIZE, ReplacementPolicyFactory,
    ReplacementPolicyRef, create_file_cache, create_physical_memory, create_policy,
};
use refit_objects::{Implementations, OwnedRep, Root, TransferError};

/// The number of bytes that are currently allocated.
static HEAP: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: all calls are forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: forwards the caller's guarantee.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: forwards the caller's guarantee.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A file of zeros that accepts and discards all writes.
struct Zeros;

impl FileRepresentative for Zeros {
    fn read(&self, _offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        buf.fill(0);
        Ok(buf.len())
    }

    fn write(&self, _offset: u64, _data: &[u8]) -> Result<(), i32> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> Result<(), i32> {
        Ok(())
    }

    fn size(&self) -> Result<u64, i32> {
        Ok(0)
    }

    fn sync(&self, _data_only: bool) -> Result<(), i32> {
        Ok(())
    }

    fn punch(&self, _start: u64, _end: u64) -> Result<(), i32> {
        Ok(())
    }

    fn sync_work(&self, _data_only: bool) -> Result<DiskWork, i32> {
        Ok(DiskWork::none())
    }

    fn fetch_work(&self, _offset: u64, _len: u64) -> Result<DiskWork, i32> {
        Ok(DiskWork::none())
    }
}

impl Root<FileRepresentativeInterface> for Zeros {
    fn implementation(&self) -> &str {
        "zeros"
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<FileRepresentativeInterface> {
        FileRepresentativeInterface::rep(Zeros)
    }

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}

impl Implementations<FileRepresentativeInterface> for Zeros {
    fn names(&self) -> Vec<&'static str> {
        vec!["zeros"]
    }

    fn root(&self, _name: &str) -> Option<Box<dyn Root<FileRepresentativeInterface>>> {
        Some(Box::new(Zeros))
    }
}

fn heap() -> isize {
    HEAP.load(Relaxed)
}

fn policy() -> ReplacementPolicyRef {
    create_policy(&ReplacementPolicyFactory::new("test", CLOCK), "test").unwrap()
}

fn cache_over(frames: &Arc<FramePool>, implementation: &str) -> FileCacheRef {
    let pm = create_physical_memory("test", Arc::clone(frames), policy());
    let fr = refit_objects::create("test", Box::new(Zeros), Arc::new(Zeros));
    let parts = CacheParts { pm, frames: Arc::clone(frames), fr };
    create_file_cache(&FileCacheFactory::new("test", implementation), "test", parts, 1 << 50)
        .unwrap()
}

/// Returns the bytes per page, descriptors included, when `pages` pages at a distance of `apart`
/// are cached.
fn bytes_per_page(implementation: &str, pages: u64, apart: u64, dirty: bool) -> f64 {
    // One-time allocations of the thread and of the object system must not be attributed to a page.
    let warm = FramePool::new(64 * PAGE_SIZE as u64).unwrap();
    cache_over(&warm, implementation).read(0, &mut [0; 64 * PAGE_SIZE]).unwrap();
    let before = heap();
    let frames = FramePool::new(pages * PAGE_SIZE as u64).unwrap();
    let cache = cache_over(&frames, implementation);
    for page in 0..pages {
        let at = page * apart * PAGE_SIZE as u64;
        if dirty {
            cache.write(at, &[1; PAGE_SIZE]).unwrap();
        } else {
            cache.read(at, &mut [0]).unwrap();
        }
    }
    assert_eq!(cache.stats().resident, pages);
    (heap() - before) as f64 / pages as f64
}

/// One test, so that no other thread allocates at the same time.
#[test]
fn pages_and_empty_caches_cost_what_is_promised() {
    for implementation in ["shared", "partitioned"] {
        let mut worst: f64 = 0.0;
        for (what, apart) in [("dense", 1), ("sparse", 1_000_003)] {
            for dirty in [false, true] {
                // Just above and just below a doubling of the tables.
                for pages in [6_100, 6_200, 12_200, 12_400] {
                    let bytes = bytes_per_page(implementation, pages, apart, dirty);
                    println!("{implementation}, {pages} {what} pages, dirty {dirty}: {bytes:.1}");
                    worst = worst.max(bytes);
                }
            }
        }
        println!("{implementation}: {worst:.1} bytes per page at worst");
        assert!(worst <= 64.0, "{implementation}: {worst} bytes per page");
    }

    let frames = FramePool::new(64 * PAGE_SIZE as u64).unwrap();
    let pm = create_physical_memory("test", Arc::clone(&frames), policy());
    let fr = refit_objects::create("test", Box::new(Zeros), Arc::new(Zeros));
    let parts = CacheParts { pm, frames, fr };
    let plain = per_object(|| fr_of_its_own().size().map(drop).unwrap());
    for (implementation, most) in [("shared", 350), ("partitioned", 350 + 600 * processors())] {
        let factory = FileCacheFactory::new("test", implementation);
        let whole = per_object(|| {
            let cache = create_file_cache(&factory, "test", parts.clone(), 0).unwrap();
            cache.read(0, &mut [0]).unwrap();
        });
        println!("an empty cache `{implementation}`: {} + {plain} of the object", whole - plain);
        assert!(whole - plain < most, "{implementation}: {} bytes", whole - plain);
    }
}

fn processors() -> isize {
    refit_sys::processor::count() as isize
}

/// Creates a file representative with almost no state.
fn fr_of_its_own() -> refit_memory::FileRepresentativeRef {
    refit_objects::create("test", Box::new(Zeros), Arc::new(Zeros))
}

fn per_object(make: impl Fn()) -> isize {
    let before = heap();
    (0..1000).for_each(|_| make());
    (heap() - before) / 1000
}
