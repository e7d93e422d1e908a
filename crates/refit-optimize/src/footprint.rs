//! The instruction-cache footprint of the hot code: which cache lines of which pages run, and how
//! often.

use std::collections::BTreeMap;

use refit_analysis::{FunctionId, Module};

use crate::layout::{Figures, Hot, LINE, Order, PAGE, Placed};

/// The hot code in the order of the linker, and in the new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Footprints {
    /// Where it was.
    pub before: Footprint,
    /// In the copies, whose addresses begin at 0.
    pub after: Footprint,
    /// The names of the functions.
    pub names: BTreeMap<FunctionId, String>,
}

/// The code that runs, in some order.
#[derive(Clone, Debug, PartialEq)]
pub struct Footprint {
    /// Its figures.
    pub figures: Figures,
    /// The pages in which something runs, by address.
    pub pages: Vec<Page>,
}

/// A page of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its address.
    pub address: u64,
    /// The lines in which something runs, by index.
    pub lines: Vec<Line>,
}

/// A cache line of 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its index within the page, from 0 to 63.
    pub index: u8,
    /// Number of times that the blocks ran of which it has a byte.
    pub runs: u64,
    /// The functions of these blocks, by address.
    pub functions: Vec<FunctionId>,
}

impl Footprints {
    /// Computes both.
    pub fn new(module: &Module, hot: &Hot, order: &Order) -> Self {
        let [before, after] = [hot.placed_before(), hot.placed_after(order)];
        let ids = before.iter().map(|block| block.function);
        let names = ids.map(|id| (id, module.function(id).name())).collect();
        let before = Footprint { figures: hot.figures_before(), pages: pages(&before) };
        let after = Footprint { figures: hot.figures_after(order), pages: pages(&after) };
        Self { before, after, names }
    }
}

/// Returns the pages of blocks.
fn pages(blocks: &[Placed]) -> Vec<Page> {
    let mut lines = BTreeMap::<u64, (u64, Vec<FunctionId>)>::new();
    let mut sorted: Vec<&Placed> = blocks.iter().collect();
    sorted.sort_by_key(|block| block.addresses.start);
    for block in sorted {
        for line in block.addresses.start / LINE..block.addresses.end.div_ceil(LINE) {
            let (runs, functions) = lines.entry(line).or_default();
            *runs = runs.saturating_add(block.count);
            if !functions.contains(&block.function) {
                functions.push(block.function);
            }
        }
    }
    let mut pages = Vec::<Page>::new();
    for (line, (runs, functions)) in lines {
        let address = line * LINE / PAGE * PAGE;
        let index = ((line * LINE - address) / LINE) as u8;
        if pages.last().is_none_or(|page| page.address != address) {
            pages.push(Page { address, lines: Vec::new() });
        }
        if let Some(page) = pages.last_mut() {
            page.lines.push(Line { index, runs, functions });
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_runs_of_all_blocks_in_it() {
        let placed = |addresses, count, function| Placed {
            addresses,
            count,
            function: FunctionId(function),
        };
        let blocks = [
            placed(0x2fc0..0x3001, 5, 1),
            placed(0x1010..0x1020, 2, 0),
            placed(0x1020..0x1050, 1, 0),
        ];
        let line =
            |index, runs, function| Line { index, runs, functions: vec![FunctionId(function)] };
        let found = pages(&blocks);
        assert_eq!(
            found,
            [
                Page { address: 0x1000, lines: vec![line(0, 3, 0), line(1, 1, 0)] },
                Page { address: 0x2000, lines: vec![line(63, 5, 1)] },
                Page { address: 0x3000, lines: vec![line(0, 5, 1)] },
            ]
        );
    }
}
