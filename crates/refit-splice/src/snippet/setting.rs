//! The surroundings of snippets in a program: cells, thread pointers, buffers of records.

use refit_instruments::session::Geometry;

use crate::stacks::Walk;
use crate::store::Store;

/// The surroundings of snippets in a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) cells: Cells,
    /// Offset of the C library's thread id from the thread pointer; `None`: snippets ask the
    /// kernel.
    pub(crate) thread: Option<i32>,
    /// Whether the processor can read thread pointers (`rdfsbase`), which distinguish threads.
    pub(crate) pointers: bool,
    /// Whether the processor can store flags in `rax` (`lahf`) in 64-bit programs.
    pub(crate) lahf: bool,
    /// Address of the list of indices of frame descriptions (`indices`).
    pub(crate) indices: u64,
    /// The means of walking stacks, if any are walked.
    pub(crate) walk: Option<Walk>,
    /// Where keys of several items are stored, if there are any.
    pub(crate) tuples: Option<Store>,
    /// Where records go, if any are written.
    pub(crate) rings: Option<Rings>,
}

/// The means by which a thread finds the cells of its processor. A wrong processor number costs
/// time, never a count: additions are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The kernel keeps the processor's number in the thread's restartable-sequence area, at this
    /// offset from the thread pointer.
    Area(i32),
    /// By `rdpid`.
    Asked,
    /// All threads share one lane.
    One,
}

/// Where cells are in the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cells {
    pub(crate) lane: Lane,
    /// Address of a word that holds the address of the first lane.
    pub(crate) base: u64,
    /// Address of the first lane.
    pub(crate) first: u64,
    /// Number of lanes, and bytes from one to the next, as powers of two.
    pub(crate) lanes: u32,
    pub(crate) stride: u32,
}

/// The rings of a session, as mapped in the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    /// Address of the session.
    pub(crate) address: u64,
    /// Layout of the session.
    pub(crate) geometry: Geometry,
}
