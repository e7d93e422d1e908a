//! The means by which snippets walk the program's stack, and the stacks that they have stored.
//!
//! A walk (`snippet::stack`) goes from frame to frame by a table of unwinding rules that is made
//! from the frame descriptions of all code that the program has mapped (`row`, `table`); it needs
//! no frame pointers. Each stack is stored once, and snippets count under its number.
//!
//! [`fn@walk`] does the same outside of the program.
//!
//! Everything is in the data of one patch area, behind its lanes:
//!
//! | part | what |
//! |---|---|
//! | limits | for pages to which stack pointers have pointed, how many above are readable |
//! | store | the stacks, by their hashes ([`Store`]) |
//! | granules, blocks, rows | the [`Table`] |

mod row;
mod table;
mod walk;

use rayon::prelude::*;
use refit_analysis::image::Procedure;

pub use row::Row;
pub(crate) use row::{Kind, SAVED_BY_SIGNAL};
pub(crate) use table::{BLOCKS, GRANULE, SPREAD, Table};
pub use walk::{Position, Walked, WalkedFrame, walk, word_of};

use crate::store::{Store, content};

/// Maximum number of frames of a stack.
pub const FRAMES: u8 = 127;
/// The frame that follows the last one if it is not known how to go on.
pub const UNKNOWN_FRAME: u64 = u64::MAX;
/// Number of pages whose limits are kept: a power of two.
pub(crate) const LIMITS: u64 = 1 << 10;
/// Words of a stack: its frames and an end.
const STACK: usize = FRAMES as usize + 1;

/// The table of a program, before it is written into a patch area.
#[derive(Debug)]
pub struct Stacks {
    table: Table,
}

/// The addresses of the parts in the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) limits: u64,
    pub(crate) store: Store,
    pub(crate) granules: u64,
    /// Number of places of the hash table, as a power of two.
    pub(crate) places: u32,
    pub(crate) blocks: u64,
    pub(crate) rows: u64,
    /// Whether the program allows snippets to ask the kernel whether memory is readable.
    pub(crate) asks: bool,
}

impl Stacks {
    /// Makes the table of a program; `procedures` are those of all its code, at their addresses in
    /// the program.
    pub fn new(procedures: impl ParallelIterator<Item = Procedure>) -> Self {
        Self { table: Table::new(procedures) }
    }

    /// Returns the number of bytes that everything takes.
    pub(crate) fn bytes(&self) -> u64 {
        let walk = self.walk(0);
        walk.rows + self.table.rows.len() as u64 * 8
    }

    /// Returns the addresses of the parts, the first of which is at `at`.
    pub(crate) fn walk(&self, at: u64) -> Walk {
        let store = store(at);
        let granules = store.end();
        let blocks = granules + self.table.granules.len() as u64 * 8;
        let rows = (blocks + self.table.blocks.len() as u64 * 4).next_multiple_of(8);
        let places = self.table.granules.len().trailing_zeros();
        Walk { limits: at, store, granules, places, blocks, rows, asks: true }
    }

    /// Encodes the table, from its hash table on.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Table { granules, blocks, rows } = &self.table;
        let mut bytes: Vec<u8> = granules.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(blocks.iter().flat_map(|index| index.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
        bytes
    }
}

/// Returns the store of stacks behind the limits, which begin at `at`.
pub(crate) fn store(at: u64) -> Store {
    Store::new(at + LIMITS * 8, STACK)
}

/// Returns the frames of a stack, the innermost first, from the words of its place; `None` if it is
/// not complete.
pub(crate) fn frames(place: &[u64]) -> Option<Vec<u64>> {
    let content = content(place)?;
    Some(content.iter().copied().take_while(|frame| *frame != 0).collect())
}
