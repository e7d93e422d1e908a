//! The table of rows, found by address in a few loads.
//!
//! Code is divided into *granules* of 64 KiB and *blocks* of 256 bytes. A hash table has the
//! granules with rows in them; each has a list of its blocks, and each block a list of its rows,
//! whose first one begins with the block and whose last one is followed by an end.

use std::ops::Range;

use rayon::prelude::*;
use refit_analysis::image::Procedure;

use super::row::Row;

/// Bits of an address within a block, and within a granule.
pub(crate) const BLOCK: u32 = 8;
pub(crate) const GRANULE: u32 = 16;
/// Blocks in a granule.
pub(crate) const BLOCKS: u64 = 1 << (GRANULE - BLOCK);
/// By this the number of a granule is multiplied; the upper bits of the 32 of the product say where
/// the search for it begins.
pub(crate) const SPREAD: u32 = 0x9e37_79b1;

/// Rows of code, by ascending address.
#[derive(Debug)]
pub(crate) struct Table {
    /// The hash table: for each granule, its number in the upper half, and its rank plus one in the
    /// lower half; 0 if free. Its length is a power of two.
    pub(crate) granules: Vec<u64>,
    /// The index of the first row of each block, granule by granule.
    pub(crate) blocks: Vec<u32>,
    /// Rows, as [`Row::encode`] encodes them.
    pub(crate) rows: Vec<u64>,
}

impl Table {
    /// Makes the table of these procedures. Where they overlap, the one that begins first counts.
    pub(crate) fn new(procedures: impl ParallelIterator<Item = Procedure>) -> Self {
        let mut pieces: Vec<_> = procedures.flat_map_iter(pieces).collect();
        pieces.par_sort_by_key(|(range, _)| range.start);
        let mut blocks = Blocks::default();
        for (range, row) in pieces {
            blocks.add(range, row);
        }
        blocks.finish()
    }
}

/// Returns the rows of a procedure, each with the code to which it applies.
fn pieces(procedure: Procedure) -> impl Iterator<Item = (Range<u64>, Row)> {
    let begins: Vec<u64> = procedure.rows.iter().map(|(begin, _)| *begin).collect();
    let ends = begins.clone().into_iter().skip(1).chain([procedure.addresses.end]);
    let rows = procedure.rows.iter().map(|(_, rules)| Row::new(&procedure, rules));
    let rows: Vec<Row> = rows.collect();
    begins.into_iter().zip(ends).map(|(begin, end)| begin..end).zip(rows)
}

/// Blocks that are being filled, in the order of addresses.
#[derive(Debug)]
struct Blocks {
    ranks: Vec<u64>,
    blocks: Vec<u32>,
    rows: Vec<u64>,
    /// The address up to which there are rows.
    filled: u64,
    /// The last row.
    last: Row,
}

impl Default for Blocks {
    fn default() -> Self {
        // The rows of blocks without code: unknown, up to the end.
        let rows = vec![Row::UNKNOWN.encode(0), END];
        Self { ranks: Vec::new(), blocks: Vec::new(), rows, filled: 0, last: Row::UNKNOWN }
    }
}

/// The end of a block's rows: an address beyond the block.
const END: u64 = 1 << BLOCK;

impl Blocks {
    fn add(&mut self, range: Range<u64>, row: Row) {
        let mut at = range.start.max(self.filled);
        while at < range.end {
            let block = at >> BLOCK;
            self.enter(block);
            if at > self.filled {
                self.put(self.filled, Row::UNKNOWN);
            }
            self.put(at, row);
            self.filled = range.end.min((block + 1) << BLOCK);
            at = self.filled;
        }
    }

    /// Begins a block, unless it is the current one.
    fn enter(&mut self, block: u64) {
        let begin = block << BLOCK;
        if begin < self.filled {
            return;
        }
        self.leave();
        let granule = begin >> GRANULE;
        if self.ranks.last() != Some(&granule) {
            self.ranks.push(granule);
            self.blocks.resize(self.blocks.len() + BLOCKS as usize, 0);
        }
        let list = self.blocks.len() - BLOCKS as usize;
        self.blocks[list + (block % BLOCKS) as usize] = self.rows.len() as u32;
        self.filled = begin;
    }

    /// Ends the current block.
    fn leave(&mut self) {
        if self.ranks.is_empty() {
            return;
        }
        if !self.filled.is_multiple_of(1 << BLOCK) {
            self.put(self.filled, Row::UNKNOWN);
        }
        self.rows.push(END);
    }

    /// Adds a row, unless the row before it says the same.
    fn put(&mut self, at: u64, row: Row) {
        let from = (at % (1 << BLOCK)) as u16;
        if from == 0 || self.last != row {
            self.rows.push(row.encode(from));
        }
        self.last = row;
    }

    fn finish(mut self) -> Table {
        self.leave();
        let places = (2 * self.ranks.len()).next_power_of_two().max(2);
        let mut granules = vec![0; places];
        let shift = u32::BITS - places.trailing_zeros();
        for (rank, granule) in (1..).zip(&self.ranks) {
            let mut at = ((*granule as u32).wrapping_mul(SPREAD) >> shift) as usize;
            while granules[at] != 0 {
                at = (at + 1) % places;
            }
            granules[at] = granule << 32 | rank;
        }
        Table { granules, blocks: self.blocks, rows: self.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_analysis::image::procedure;

    /// Looks up a row as snippets do; returns it without its address.
    fn look_up(table: &Table, address: u64) -> u64 {
        let granule = address >> GRANULE;
        let shift = u32::BITS - table.granules.len().trailing_zeros();
        let mut at = ((granule as u32).wrapping_mul(SPREAD) >> shift) as usize;
        let rank = loop {
            match table.granules[at] {
                0 => return Row::UNKNOWN.encode(0),
                found if found >> 32 == granule => break found & 0xffff_ffff,
                _ => at = (at + 1) % table.granules.len(),
            }
        };
        let block = (rank - 1) * BLOCKS + (address >> BLOCK) % BLOCKS;
        let mut row = table.blocks[block as usize] as usize;
        while table.rows[row + 1] & 0xffff <= address % (1 << BLOCK) {
            row += 1;
        }
        table.rows[row] >> 16 << 16
    }

    fn procedure(addresses: Range<u64>, begins: &[u64]) -> Procedure {
        let row = |(number, begin): (usize, &u64)| {
            let cfa = procedure::Cfa::Register(7, 8 + 8 * number as i64);
            (*begin, procedure::Row { cfa, ..procedure::Row::at_entry() })
        };
        Procedure {
            addresses,
            personality: None,
            language_data: None,
            signal: false,
            rows: begins.iter().enumerate().map(row).collect(),
        }
    }

    #[test]
    fn every_address_has_its_row() {
        let (base, mut seed) = (0x7f12_3456_0000, 7_u64);
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut all, mut at) = (Vec::new(), base);
        for _ in 0..500 {
            let begin = at + next(2) * next(40) + next(30) / 29 * 0x3_0000;
            let mut begins = vec![begin];
            for _ in 0..next(6) {
                begins.push(begins[begins.len() - 1] + 1 + next(300));
            }
            at = begins[begins.len() - 1] + 1 + next(200);
            all.push(procedure(begin..at, &begins));
        }
        let table = Table::new(all.par_iter().rev().cloned());
        let unknown = Row::UNKNOWN.encode(0);
        for address in (base - 1000..at + 1000).chain([0, u64::MAX >> 17]) {
            let found = all.iter().find(|one| one.addresses.contains(&address));
            let row = found.and_then(|one| Some(Row::new(one, one.row(address)?).encode(0)));
            assert_eq!(look_up(&table, address), row.unwrap_or(unknown), "{address:#x}");
        }
    }

    #[test]
    fn of_what_overlaps_the_first_counts() {
        let table = Table::new(
            [procedure(0x1010..0x1080, &[0x1010]), procedure(0x1000..0x1020, &[0x1000, 0x1008])]
                .into_par_iter(),
        );
        let words = |address| look_up(&table, address) >> 32 & 0xffff;
        assert_eq!([0xfff, 0x1000, 0x101f, 0x1020, 0x107f, 0x1080].map(words), [0, 1, 2, 1, 1, 0]);
    }
}
