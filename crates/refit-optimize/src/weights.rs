//! The counts of the ways between blocks, from those of the blocks.
//!
//! It is known between which blocks control passes, but not how often. If the counts of all ways
//! into a block, or out of it, are known but one, the block's count determines that one. This is
//! repeated until nothing changes. What is left is divided in the ratio of the counts of the blocks
//! that it leads to.

use refit_analysis::flow::{EdgeKind, Flow, Target};

use crate::ext_tsp::Jump;

/// A way from a block to another one.
struct Way {
    from: usize,
    to: usize,
    count: Option<u64>,
}

/// Returns the ways between the blocks of a function that run so often, each with its count; a
/// block whose count is unknown gets one.
pub fn jumps(flow: &Flow, counts: &mut [Option<u64>]) -> Vec<Jump> {
    let mut ways = Vec::new();
    for edge in flow.edges() {
        let follows = !matches!(edge.kind, EdgeKind::Unwind | EdgeKind::Call);
        if let (Target::Block(to), true) = (edge.to, follows) {
            ways.push(Way { from: edge.from as usize, to: to as usize, count: None });
        }
    }
    let mut graph = Graph::new(ways, counts.len(), &leaves(flow, counts.len()));
    graph.propagate(counts);
    graph.divide(counts);
    let counted = graph.ways.iter();
    counted.map(|way| Jump { from: way.from, to: way.to, count: way.count.unwrap_or(0) }).collect()
}

/// Returns for each block whether control may leave it for something that is no block.
fn leaves(flow: &Flow, blocks: usize) -> Vec<bool> {
    let mut leaves = vec![false; blocks];
    for edge in flow.edges() {
        if !matches!(edge.to, Target::Block(_)) || edge.kind == EdgeKind::Unwind {
            leaves[edge.from as usize] = true;
        }
    }
    leaves
}

struct Graph {
    ways: Vec<Way>,
    /// The ways that leave each block, and whether these are all.
    out: Vec<(Vec<usize>, bool)>,
    /// The ways that lead to each block, and whether these are all.
    into: Vec<(Vec<usize>, bool)>,
}

impl Graph {
    fn new(ways: Vec<Way>, blocks: usize, leaves: &[bool]) -> Self {
        let (mut out, mut into) = (vec![Vec::new(); blocks], vec![Vec::new(); blocks]);
        for (index, way) in ways.iter().enumerate() {
            out[way.from].push(index);
            into[way.to].push(index);
        }
        let out = out.into_iter().zip(leaves).map(|(ways, leaves)| (ways, !leaves)).collect();
        // Where nothing leads, control comes from outside; so it may to the entry.
        let whole = |(block, ways): (usize, Vec<usize>)| {
            let whole = block != 0 && !ways.is_empty();
            (ways, whole)
        };
        let into = into.into_iter().enumerate().map(whole).collect();
        Self { ways, out, into }
    }

    /// Determines what follows from counts that are known.
    fn propagate(&mut self, counts: &mut [Option<u64>]) {
        let mut changes = true;
        while changes {
            changes = false;
            for (block, of_block) in counts.iter_mut().enumerate() {
                for ends in [&self.out[block], &self.into[block]] {
                    let (own, whole) = ends;
                    if !whole {
                        continue;
                    }
                    let known: u64 = own.iter().filter_map(|&way| self.ways[way].count).sum();
                    let mut unknown = own.iter().filter(|&&way| self.ways[way].count.is_none());
                    match (*of_block, unknown.next(), unknown.next()) {
                        (Some(count), Some(&way), None) => {
                            self.ways[way].count = Some(count.saturating_sub(known));
                            changes = true;
                        }
                        (None, None, _) => {
                            *of_block = Some(known);
                            changes = true;
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Divides the rest of each block's count among the ways that are left.
    fn divide(&mut self, counts: &mut [Option<u64>]) {
        for block in 0..counts.len() {
            let own = &self.out[block].0;
            let known: u64 = own.iter().filter_map(|&way| self.ways[way].count).sum();
            let left: Vec<usize> =
                own.iter().copied().filter(|&way| self.ways[way].count.is_none()).collect();
            let of = left.iter().map(|&way| counts[self.ways[way].to].unwrap_or(0));
            let of: Vec<u64> = of.collect();
            let all: u64 = of.iter().sum();
            let rest = counts[block].unwrap_or(all).saturating_sub(known);
            for (way, of) in left.into_iter().zip(of) {
                let share = of as f64 / all.max(1) as f64;
                self.ways[way].count = Some((rest as f64 * share) as u64);
            }
        }
        for (block, count) in counts.iter_mut().enumerate() {
            let into = self.into[block].0.iter().filter_map(|&way| self.ways[way].count);
            count.get_or_insert_with(|| into.sum());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_blocks_determine_those_of_most_ways() {
        // 0 -> 1, 2; 1 -> 3; 2 -> 3; 3 -> 1 (back), out.
        let ends = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 1)];
        let ways = ends.map(|(from, to)| Way { from, to, count: None });
        let mut graph = Graph::new(ways.into(), 4, &[false, false, false, true]);
        let mut counts = [Some(10), Some(97), Some(4), None];
        graph.propagate(&mut counts);
        graph.divide(&mut counts);
        let found: Vec<_> = graph.ways.iter().map(|way| way.count).collect();
        assert_eq!(found, [6, 4, 97, 4, 91].map(Some));
        assert_eq!(counts[3], Some(101));
    }
}
