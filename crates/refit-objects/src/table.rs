//! The object translation table: a row for every processor, with an entry for every object (Hui
//! 2000, §3.3.2; there each processor maps its own row at the same address, here rseq selects the
//! row).
//!
//! An entry points to the rep that serves the object on that processor, to the object's default
//! object if none is known, or to [`GONE`] if the object has been destroyed. Entries are a cache:
//! any entry may be reset to the default object at any time, and the next call regenerates it.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use refit_sys::processor::MyProcessor;

use crate::rep::{RepHeader, VT_MAGIC, VtHeader, VtPtr, keep_rep};
use crate::rep_cell::RepCell;

/// An entry of the table.
type Entry = RepCell<RepHeader>;

/// The maximum number of live objects in a process.
pub(crate) const CAPACITY: usize = 1 << 20;

/// The start of the rows; null before the first object is created. Row `p` starts at `p *
/// CAPACITY`.
static ROWS: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());
/// The number of rows.
static PROCESSORS: AtomicUsize = AtomicUsize::new(0);

/// The target of entries of destroyed objects; no object has id 0.
static GONE: RepHeader = RepHeader {
    // SAFETY: VtHeader starts with itself; nothing is called through it.
    vtable: unsafe { VtPtr::new(&EMPTY) },
    object: 0,
};
static EMPTY: VtHeader =
    VtHeader { magic: VT_MAGIC, size: 0, version: 0, methods: &[], drop: keep_rep };

/// Allocates the rows, once. The memory is reserved, not touched: a row costs as much as its used
/// entries.
pub(crate) fn prepare() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        refit_sys::barrier::prepare();
        refit_sys::clock::prepare();
        let processors = refit_sys::processor::count();
        PROCESSORS.store(processors, Ordering::Relaxed);
        ROWS.store(reserve(processors), Ordering::Release); // Pairs with the load in `entry`.
    });
}

/// Makes one allocation for all rows, so that an entry is one multiplication away.
fn reserve(rows: usize) -> *mut Entry {
    let layout = Layout::array::<Entry>(rows * CAPACITY)
        .expect("the table of all processors fits the address space");
    // SAFETY: the layout is not empty; zeroed memory is a valid array of null cells.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    memory.cast()
}

/// Returns the entry of an object on a processor.
///
/// # Safety
/// An object with this index must have been created (so that the rows exist), and `processor` must
/// be below `refit_sys::processor::count()`.
#[inline(always)]
unsafe fn entry(processor: usize, index: u32) -> &'static Entry {
    // Relaxed: a caller that has a reference got it from a thread that has seen the rows.
    let rows = ROWS.load(Ordering::Relaxed);
    // SAFETY: index < CAPACITY by construction of references, processor < number of rows by the
    // caller's guarantee; the rows are never freed.
    unsafe { &*rows.add(processor * CAPACITY + index as usize) }
}

/// Returns the rep that serves an object on the processor of this thread.
///
/// # Safety
/// An object with this index must have been created. The rep may be used only until the current
/// request ends.
#[inline(always)]
pub(crate) unsafe fn look_up(index: u32) -> *const RepHeader {
    // SAFETY: `current` is below the count; the caller guarantees the rest.
    unsafe { entry(refit_sys::processor::current(), index) }.load()
}

/// A thread's location of its table entries where rseq reports its processor, so that a lookup
/// queries nothing twice.
pub(crate) struct Entries {
    rows: Cell<*const Entry>,
    processors: Cell<u32>,
    processor: Cell<Option<MyProcessor>>,
}

impl Entries {
    pub(crate) const fn unknown() -> Self {
        Entries {
            rows: Cell::new(std::ptr::null()),
            processors: Cell::new(0),
            processor: Cell::new(None),
        }
    }

    /// Finds the location. Returns whether that is possible for this thread.
    pub(crate) fn find(&self) -> bool {
        prepare();
        self.rows.set(ROWS.load(Ordering::Relaxed));
        self.processors.set(PROCESSORS.load(Ordering::Relaxed) as u32);
        self.processor.set(MyProcessor::find());
        self.processor.get().is_some()
    }

    /// Returns the rep that serves an object on the processor of this thread; `None` while the
    /// kernel does not report the processor.
    ///
    /// # Safety
    /// As for [`look_up`], and [`Self::find`] must have returned true to this thread.
    #[inline(always)]
    pub(crate) unsafe fn look_up(&self, index: u32) -> Option<*const RepHeader> {
        // SAFETY: `find` has found it.
        let processor = unsafe { self.processor.get().unwrap_unchecked() }.number();
        if processor >= self.processors.get() {
            return None;
        }
        // SAFETY: index < CAPACITY by construction of references, processor < number of rows as
        // checked; the rows are never freed.
        let entry =
            unsafe { &*self.rows.get().add(processor as usize * CAPACITY + index as usize) };
        Some(entry.load())
    }
}

/// Points the entry of one processor to a rep.
///
/// # Safety
/// An object with this index must have been created, and the rep must stay alive until the entry
/// has been replaced and a generation has passed.
pub(crate) unsafe fn install(processor: usize, index: u32, rep: *const RepHeader) {
    // SAFETY: guaranteed by the caller.
    unsafe { entry(processor, index) }.store(rep);
}

/// Points the entries of all processors to a rep: the default object at a flush.
///
/// # Safety
/// As for [`install`].
pub(crate) unsafe fn install_everywhere(index: u32, rep: *const RepHeader) {
    for processor in 0..PROCESSORS.load(Ordering::Relaxed) {
        // SAFETY: guaranteed by the caller; `processor` is below the count.
        unsafe { install(processor, index, rep) };
    }
}

/// Returns the rep of destroyed objects.
pub(crate) fn gone() -> *const RepHeader {
    &raw const GONE
}
