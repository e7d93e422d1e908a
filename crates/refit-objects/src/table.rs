//! The object translation table: for every processor a row, for every object an entry in each row
//! (Hui 2000, §3.3.2; there each processor maps its own row at one address, here rseq tells the row).
//!
//! An entry points to the rep that serves the object on that processor, to the object's default object when none is
//! known, or to [`GONE`] when the object has been destroyed. Entries are a cache: any entry may be set back to the
//! default object at any time, the next call regenerates it.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use refit_sys::processor::MyProcessor;

use crate::rep::{RepHeader, VT_MAGIC, VtHeader, VtPtr, keep_rep};

/// Objects that can live at the same time in one process.
pub(crate) const CAPACITY: usize = 1 << 20;

/// Start of the rows; null before the first object is created. Row `p` starts at `p * CAPACITY`.
static ROWS: AtomicPtr<AtomicPtr<RepHeader>> = AtomicPtr::new(std::ptr::null_mut());
/// Number of rows.
static PROCESSORS: AtomicUsize = AtomicUsize::new(0);

/// What entries of destroyed objects point to: no object has id 0.
static GONE: RepHeader = RepHeader {
    // SAFETY: VtHeader starts with itself; nothing is called through it.
    vtable: unsafe { VtPtr::new(&EMPTY) },
    object: 0,
};
static EMPTY: VtHeader =
    VtHeader { magic: VT_MAGIC, size: 0, version: 0, methods: &[], drop: keep_rep };

/// Lays out the rows, once. The memory is reserved, not touched: a row costs what its used entries cost.
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

/// One allocation for all rows, so that an entry is one multiplication away.
fn reserve(rows: usize) -> *mut AtomicPtr<RepHeader> {
    let layout = Layout::array::<AtomicPtr<RepHeader>>(rows * CAPACITY)
        .expect("the table of all processors fits the address space");
    // SAFETY: the layout is not empty; zeroed memory is a valid array of null `AtomicPtr`s.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    memory.cast()
}

/// The entry of an object on a processor.
///
/// # Safety
/// An object with this index must have been created (so that the rows exist), and `processor` must be below
/// `refit_sys::processor::count()`.
#[inline(always)]
unsafe fn entry(processor: usize, index: u32) -> &'static AtomicPtr<RepHeader> {
    // Relaxed: whoever has a reference got it from a thread that has seen the rows.
    let rows = ROWS.load(Ordering::Relaxed);
    // SAFETY: index < CAPACITY by construction of references, processor < number of rows by the caller's promise;
    // the rows are never freed.
    unsafe { &*rows.add(processor * CAPACITY + index as usize) }
}

/// The rep that serves an object on the processor of this thread.
///
/// # Safety
/// An object with this index must have been created. The rep may be used only until the present request ends.
#[inline(always)]
pub(crate) unsafe fn look_up(index: u32) -> *const RepHeader {
    // SAFETY: `current` is below the count; the rest is the caller's promise. Acquire pairs with the release stores
    // below: the rep is seen as it was when it was installed.
    unsafe { entry(refit_sys::processor::current(), index) }.load(Ordering::Acquire)
}

/// What a thread remembers of the table where rseq tells its processor, so that a look-up asks nothing twice.
pub(crate) struct Entries {
    rows: Cell<*const AtomicPtr<RepHeader>>,
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

    /// Finds them; whether that can be done for this thread.
    pub(crate) fn find(&self) -> bool {
        prepare();
        self.rows.set(ROWS.load(Ordering::Relaxed));
        self.processors.set(PROCESSORS.load(Ordering::Relaxed) as u32);
        self.processor.set(MyProcessor::find());
        self.processor.get().is_some()
    }

    /// The rep that serves an object on the processor of this thread; `None` while the kernel does not tell which.
    ///
    /// # Safety
    /// As for [`look_up`], and [`Self::find`] must have answered this thread with true.
    #[inline(always)]
    pub(crate) unsafe fn look_up(&self, index: u32) -> Option<*const RepHeader> {
        // SAFETY: `find` found it.
        let processor = unsafe { self.processor.get().unwrap_unchecked() }.number();
        if processor >= self.processors.get() {
            return None;
        }
        // SAFETY: index < CAPACITY by construction of references, processor < number of rows as checked; the rows are
        // never freed.
        let entry =
            unsafe { &*self.rows.get().add(processor as usize * CAPACITY + index as usize) };
        Some(entry.load(Ordering::Acquire)) // Pairs as in `look_up`.
    }
}

/// Points the entry of one processor to a rep.
///
/// # Safety
/// An object with this index must have been created; the rep must stay alive until the entry has been replaced and
/// a generation has passed.
pub(crate) unsafe fn install(processor: usize, index: u32, rep: *const RepHeader) {
    // SAFETY: the caller's promise. Release pairs with the acquire load in `look_up`.
    unsafe { entry(processor, index) }.store(rep.cast_mut(), Ordering::Release);
}

/// Points the entries of all processors to a rep: the default object at a flush.
///
/// # Safety
/// As for [`install`].
pub(crate) unsafe fn install_everywhere(index: u32, rep: *const RepHeader) {
    for processor in 0..PROCESSORS.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise; `processor` is below the count.
        unsafe { install(processor, index, rep) };
    }
}

/// The rep of what does not exist any more.
pub(crate) fn gone() -> *const RepHeader {
    &raw const GONE
}
