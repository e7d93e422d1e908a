//! The functions whose blocks are copied, and the order of the copies.

use std::ops::Range;
use std::sync::Arc;

use crate::body::Body;

/// The blocks of functions that are copied, in the order of their copies.
#[derive(Debug, Default)]
pub struct Arrangement {
    /// The functions.
    pub functions: Vec<Arc<Body>>,
    /// The blocks, those of each function together.
    pub blocks: Vec<ArrangedBlock>,
    /// The jump tables that are copied.
    pub tables: Vec<ArrangedTable>,
    /// The calls that are made in other ways.
    pub calls: Vec<ArrangedCall>,
}

/// A block of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrangedBlock {
    /// Index of the function.
    pub function: usize,
    /// The addresses of its code.
    pub addresses: Range<u64>,
    /// Whether control that is in the original enters the copy at its beginning, if a jump fits
    /// there. At the entries of functions it always does.
    pub enters: bool,
    /// At which addresses its copy begins; `None`: at any.
    pub alignment: Option<Alignment>,
}

/// The addresses that are a number of bytes behind a multiple of a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    multiple: u64,
    behind: u64,
}

impl Alignment {
    /// The largest multiple, in bytes.
    pub const MOST: u64 = 64;

    /// Returns the addresses that are `behind` bytes behind a multiple of `multiple`, which is
    /// rounded up to a power of two, up to [`MOST`](Self::MOST).
    pub fn new(multiple: u64, behind: u64) -> Self {
        let multiple = multiple.clamp(1, Self::MOST).next_power_of_two();
        Self { multiple, behind: behind % multiple }
    }

    /// Returns the number of bytes from an address to the next of these.
    pub(super) fn missing(self, address: u64) -> u64 {
        self.behind.wrapping_sub(address) % self.multiple
    }
}

/// A call at the end of a block whose copy gets to its target in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrangedCall {
    /// Address of the call.
    pub address: u64,
    /// The way.
    pub callee: Callee,
}

/// A way to get to the target of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The call is one through a register or memory, and mostly leads to one of these functions,
    /// the most frequent first. The copy compares the target with them, and calls their copies
    /// directly. Before the call, `r11` and the flags are dead, and the call does not use `r11`.
    Likely(Vec<u64>),
    /// The call leads to a stub of the procedure linkage table, which jumps to the address that is
    /// stored here. The copy does so itself.
    Stored(u64),
}

/// A table by which a jump chooses its target. A copy of the jump reads a copy of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrangedTable {
    /// Address of the instruction that reads an entry: the jump itself, or one before it. Up to the
    /// jump, the value is used to compute the target only, and nothing else is done with it
    /// afterwards.
    pub load: u64,
    /// Address of the jump.
    pub jump: u64,
    /// Address of the table.
    pub address: u64,
    /// Address from which the entries, of 4 bytes each, are distances; `None` if they are addresses
    /// of 8 bytes each.
    pub base: Option<u64>,
    /// The targets of its entries.
    pub targets: Vec<u64>,
}
