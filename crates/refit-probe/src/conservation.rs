//! Counts of blocks that follow from the counts of others.
//!
//! Control that leaves a block enters one of its successors at once. So blocks that have a
//! successor in common lead to one *junction*, and all their successors begin there: together these
//! run as often as the blocks that lead there. The blocks of a function are the edges of a graph of
//! such junctions, and counters on the edges outside of a spanning tree determine all others (Knuth
//! and Stevenson, Optimal measurement points for program frequency counts, BIT 13, 1973; Ball and
//! Larus, Optimally profiling and tracing programs, TOPLAS 16, 1994). [`Conservation::counted`]
//! chooses the tree such that blocks in loops need no counter.
//!
//! One junction is everything outside of the function, where nothing is conserved. A block with a
//! call or a system call leads there, and what follows it begins there: the call may not return, it
//! may return twice, and while it lasts, counts are read. So derived counts are exact also in
//! functions that exceptions leave. They are not if a signal handler leaves a block in its middle
//! for good, and they miss what threads did that were between two blocks of the function when
//! counting began or when counts are read: at most one for each thread.

use petgraph::unionfind::UnionFind;
use refit_analysis::Module;
use refit_analysis::flow::{Flow, Target};

use crate::body;

/// Where nothing is conserved.
const OUTSIDE: usize = 0;

/// The junctions of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conservation {
    /// For each block, the junction at which it begins, and that to which it leads.
    blocks: Vec<[usize; 2]>,
    /// Number of junctions.
    junctions: usize,
}

/// Junctions of which it is not yet known which are the same.
struct Junctions(UnionFind<usize>);

impl Junctions {
    fn new(blocks: usize) -> Self {
        Self(UnionFind::new(1 + 2 * blocks))
    }

    /// Control arrives at the beginning of a block in other ways than from another block.
    fn arrives(&mut self, block: u32) {
        self.0.union(OUTSIDE, begins(block));
    }

    /// Control that leaves a block may get elsewhere than to a block.
    fn leaves(&mut self, block: u32) {
        self.0.union(OUTSIDE, leads(block));
    }

    /// Control that leaves a block may get to another one.
    fn passes(&mut self, from: u32, to: u32) {
        self.0.union(leads(from), begins(to));
    }

    fn decide(self) -> Conservation {
        let labels = self.0.into_labeling();
        // Numbers without gaps, of which that of `OUTSIDE` is the first.
        let mut numbers = vec![None; labels.len()];
        let mut junctions = 0;
        for &label in &labels {
            numbers[label].get_or_insert_with(|| {
                junctions += 1;
                junctions - 1
            });
        }
        let number = |at: usize| numbers[labels[at]].unwrap_or(OUTSIDE);
        let all = 0..(labels.len() as u32 - 1) / 2;
        let blocks = all.map(|block| [number(begins(block)), number(leads(block))]).collect();
        Conservation { blocks, junctions }
    }
}

fn begins(block: u32) -> usize {
    1 + 2 * block as usize
}

fn leads(block: u32) -> usize {
    2 + 2 * block as usize
}

impl Conservation {
    /// Returns the junctions of a function. Nothing is conserved in one of which it is not known
    /// how control passes from block to block.
    pub fn new(module: &Module, flow: &Flow) -> Self {
        let mut junctions = Junctions::new(flow.blocks().len());
        let known = body::is_understood(module, flow);
        for (index, block) in (0_u32..).zip(flow.blocks()) {
            let edges = flow.edges_from(index);
            if !known || !body::runs_through(flow, block) || edges.is_empty() {
                junctions.leaves(index);
            }
            if !known {
                junctions.arrives(index);
            }
            for edge in edges {
                match edge.to {
                    Target::Block(to) => junctions.passes(index, to),
                    _ => junctions.leaves(index),
                }
            }
        }
        let function = module.function(flow.function());
        for address in body::entered_from_elsewhere(module, flow, function) {
            let Some((index, block)) = flow.block_at(address) else { continue };
            junctions.arrives(index);
            if block.start != address {
                // Its end runs more often than its beginning.
                junctions.leaves(index);
            }
        }
        junctions.decide()
    }

    /// Returns for each block whether it is to be counted, so that the other counts follow. Blocks
    /// of higher rank are rather not counted.
    pub fn counted(&self, rank: impl Fn(usize) -> u32) -> Vec<bool> {
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        order.sort_by_cached_key(|&block| std::cmp::Reverse(rank(block)));
        let mut tree = UnionFind::<usize>::new(self.junctions);
        let mut counted = vec![false; self.blocks.len()];
        for block in order {
            let [begins, leads] = self.blocks[block];
            counted[block] = !tree.union(begins, leads);
        }
        counted
    }

    /// Adds the counts that follow from those that are there.
    pub fn derive(&self, counts: &mut [Option<u64>]) {
        let mut meet = vec![Vec::new(); self.junctions];
        for (block, &[begins, leads]) in self.blocks.iter().enumerate() {
            if begins != leads {
                meet[begins].push(block);
                meet[leads].push(block);
            }
        }
        let mut ready: Vec<usize> = (0..self.junctions).filter(|&one| one != OUTSIDE).collect();
        let mut derived = Vec::new();
        while let Some(junction) = ready.pop() {
            let mut unknown = meet[junction].iter().filter(|&&block| counts[block].is_none());
            let (Some(&block), None) = (unknown.next(), unknown.next()) else { continue };
            let leads = |block: usize| self.blocks[block][1] == junction;
            let sum = meet[junction].iter().fold(0_u64, |sum, &other| match counts[other] {
                Some(count) if leads(other) == leads(block) => sum.wrapping_sub(count),
                Some(count) => sum.wrapping_add(count),
                None => sum,
            });
            counts[block] = Some(sum);
            derived.push(block);
            let others = self.blocks[block].into_iter().filter(|&one| one != junction);
            ready.extend(others.filter(|&one| one != OUTSIDE));
        }
        // Less than none ran where a thread was under way when counting began.
        for block in derived {
            counts[block] = counts[block].filter(|&count| count.cast_signed() >= 0).or(Some(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A function with these edges: to a block, or out of the function. Some blocks call.
    fn function(edges: &[Vec<Option<u32>>], calls: &[bool]) -> Conservation {
        let mut junctions = Junctions::new(edges.len());
        junctions.arrives(0);
        for (block, to) in (0..).zip(edges) {
            for to in to {
                match to {
                    Some(to) => junctions.passes(block, *to),
                    None => junctions.leaves(block),
                }
            }
            if calls[block as usize] {
                junctions.leaves(block);
            }
        }
        junctions.decide()
    }

    #[test]
    fn a_loop_needs_one_counter_and_what_is_around_it_another() {
        // 0 -> 1; 1 -> 2 or 4; 2 -> 3; 3 -> 1; 4 leaves.
        let edges =
            [vec![Some(1)], vec![Some(2), Some(4)], vec![Some(3)], vec![Some(1)], vec![None]];
        let laws = function(&edges, &[false; 5]);
        let counted = laws.counted(|block| [0, 2, 2, 2, 0][block]);
        assert_eq!(counted.iter().filter(|counted| **counted).count(), 2, "{counted:?}");
        let all = [7, 107, 100, 100, 7].map(Some);
        let mut counts: Vec<_> =
            all.iter().zip(&counted).map(|(count, counted)| count.filter(|_| *counted)).collect();
        laws.derive(&mut counts);
        assert_eq!(counts, all);
    }

    #[test]
    fn a_call_that_does_not_return_makes_no_count_wrong() {
        // 0 calls, 1 follows and leaves.
        let laws = function(&[vec![Some(1)], vec![None]], &[true, false]);
        assert_eq!(laws.counted(|_| 0), [true, true]);
    }

    proptest! {
        #[test]
        fn counters_outside_of_the_tree_determine_all_counts(
            edges in prop::collection::vec(
                prop::collection::vec(prop::option::weighted(0.9, 0..12_u32), 1..4), 12),
            calls in prop::collection::vec(prop::bool::weighted(0.2), 12),
            ranks in prop::collection::vec(0..3_u32, 12),
            steps in prop::collection::vec((0..4_usize, prop::bool::weighted(0.3)), 0..500),
        ) {
            let laws = function(&edges, &calls);
            // Activations one after the other; the last one counts if it has come to its end.
            let (mut all, mut own, mut at) = (vec![0_u64; 12], [0_u64; 12], 0);
            for (way, throws) in steps {
                own[at as usize] += 1;
                let to = &edges[at as usize];
                let next = if calls[at as usize] && throws { None } else { to[way % to.len()] };
                at = next.unwrap_or_else(|| {
                    all.iter_mut().zip(std::mem::take(&mut own)).for_each(|(sum, n)| *sum += n);
                    0
                });
            }
            let counted = laws.counted(|block| ranks[block]);
            let mut counts: Vec<Option<u64>> = all
                .iter()
                .zip(&counted)
                .map(|(count, counted)| counted.then_some(*count))
                .collect();
            laws.derive(&mut counts);
            let all: Vec<_> = all.into_iter().map(Some).collect();
            prop_assert_eq!(counts, all);
        }
    }
}
