//! The surroundings of snippets in a program: cells, thread pointers, buffers of records.

use std::sync::OnceLock;

use refit_instruments::session::Geometry;
use refit_sys::clock;

use crate::stacks::Walk;
use crate::store::Store;

/// The surroundings of snippets in a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) cells: Cells,
    /// The means of counting by restartable sequences, if the program's threads have them.
    pub(crate) sequences: Option<Sequences>,
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
    /// Address of the first map of kept values, if there are any.
    pub(crate) kept: Option<u64>,
    /// Where records go, if any are written.
    pub(crate) rings: Option<Rings>,
}

/// The means by which a thread finds the cells of its processor. A wrong processor number costs
/// time, never a count: additions are atomic ([`count`](super::count) has others).
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

/// The means of writing sequences in a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequences {
    /// Offset of each thread's area from the thread pointer.
    pub(crate) area: i32,
    /// The number that precedes code to which sequences are aborted.
    pub(crate) signature: u32,
    /// Address of the descriptors of the listing that is being written.
    pub(crate) descriptors: u64,
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

/// The relation between the time-stamp counter and `CLOCK_MONOTONIC`, which all snippets share, so
/// that the times of different ones can be subtracted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Nanoseconds of 2^32 cycles.
    pub(super) factor: u64,
    /// The time at which the counter, in nanoseconds, was 0.
    pub(super) offset: u64,
}

/// Returns the relation, as it was measured when it was first asked for.
pub(super) fn scale() -> Scale {
    static SCALE: OnceLock<Scale> = OnceLock::new();
    *SCALE.get_or_init(|| {
        let factor = clock::nanos(1 << 32);
        let (cycles, now) = (clock::counter(), clock::monotonic());
        let nanos = ((u128::from(cycles) * u128::from(factor)) >> 32) as u64;
        Scale { factor, offset: now.wrapping_sub(nanos) }
    })
}
