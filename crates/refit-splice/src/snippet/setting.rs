//! What snippets find in a program: cells, thread pointers, buffers of records.

use refit_instruments::session::Geometry;

/// What snippets find in a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) cells: Cells,
    /// Where the C library keeps a thread's number, from the thread pointer on; `None`: the kernel is asked.
    pub(crate) thread: Option<i32>,
    /// Whether threads can be told by their thread pointers, which an instruction reads.
    pub(crate) pointers: bool,
    /// Where records go, if any do.
    pub(crate) rings: Option<Rings>,
}

/// How a thread finds the cells of its processor. Wrong guesses cost time, never a count: adding is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The kernel keeps the processor's number in the thread's restartable-sequence area: this far from the
    /// thread pointer.
    Area(i32),
    /// `rdpid` tells it.
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
    /// Lanes, and bytes from one to the next, as powers of two.
    pub(crate) lanes: u32,
    pub(crate) stride: u32,
}

/// A session's rings, as the program has them mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    /// Where the session is mapped.
    pub(crate) address: u64,
    /// How it is cut.
    pub(crate) geometry: Geometry,
}
