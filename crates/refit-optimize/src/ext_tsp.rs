//! The order of the blocks of a function: Ext-TSP (Newell and Pupyrev, Improved Basic Block
//! Reordering, IEEE Transactions on Computers 69, 2020).
//!
//! The score of an order is the sum, over all jumps, of how often a jump is taken times how well
//! its distance suits the processor's caches: 1 if the target follows at once, up to 0.1 if it is
//! at most 1,024 bytes ahead or 640 bytes back, otherwise 0. Chains of blocks are merged greedily,
//! each time those two whose union raises the score most. A short chain may be split, and the other
//! one put between its parts, where control goes on from one to the other.

use std::collections::{BTreeMap, BTreeSet};

/// Reach in bytes of jumps forward and back that are good for caches.
const FORWARD: f64 = 1024.0;
const BACKWARD: f64 = 640.0;
/// The weight of such a jump over no distance.
const NEAR: f64 = 0.1;
/// Maximum number of blocks of a chain that is split.
const SPLIT: usize = 128;
/// Gains up to this are rounding errors.
const NOTHING: f64 = 1e-6;

/// A jump from a block to another one, or its way to the one that follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jump {
    /// Index of the block that it leaves.
    pub from: usize,
    /// Index of the block that it leads to.
    pub to: usize,
    /// Number of times that it is taken.
    pub count: u64,
}

/// Blocks in their order.
#[derive(Clone, Debug)]
struct Chain {
    blocks: Vec<usize>,
    score: f64,
    /// Number of bytes that run in it: the size of each block times its count.
    runs: f64,
    /// Bytes of its blocks.
    size: f64,
}

/// Returns the order of blocks of these sizes in bytes, which run so often. The first block stays
/// the first one.
pub fn order(sizes: &[u64], counts: &[u64], jumps: &[Jump]) -> Vec<usize> {
    let mut chains = Chains::new(sizes, counts, jumps);
    chains.merge_all();
    chains.concatenated()
}

struct Chains<'a> {
    sizes: &'a [u64],
    jumps: &'a [Jump],
    /// The jumps of each block, as indices: those that leave it, and those that lead to it.
    of: Vec<Vec<usize>>,
    chains: BTreeMap<usize, Chain>,
    /// The chain of each block.
    chain: Vec<usize>,
    /// Where each block begins, in the order that is being scored; scratch.
    at: Vec<f64>,
}

/// A union of two chains.
struct Union {
    gain: f64,
    score: f64,
    blocks: Vec<usize>,
}

/// The unions of the chains that jumps connect.
#[derive(Default)]
struct Unions {
    all: BTreeMap<(usize, usize), Union>,
    /// The pairs whose union raises the score, by how much.
    ranked: BTreeSet<(Gain, (usize, usize))>,
    /// The chains that each one is connected with.
    others: BTreeMap<usize, BTreeSet<usize>>,
}

impl Unions {
    fn insert(&mut self, pair: (usize, usize), union: Union) {
        if union.gain > NOTHING {
            self.ranked.insert((Gain(union.gain), pair));
        }
        self.all.insert(pair, union);
        self.others.entry(pair.0).or_default().insert(pair.1);
        self.others.entry(pair.1).or_default().insert(pair.0);
    }

    /// Removes the best one.
    fn pop(&mut self) -> Option<((usize, usize), Union)> {
        let &(_, pair) = self.ranked.last()?;
        self.remove(pair).map(|union| (pair, union))
    }

    /// Removes all those of a chain; returns the other chains.
    fn take(&mut self, chain: usize) -> BTreeSet<usize> {
        let others = self.others.remove(&chain).unwrap_or_default();
        for &other in &others {
            self.remove((chain.min(other), chain.max(other)));
            self.others.entry(other).or_default().remove(&chain);
        }
        others
    }

    fn remove(&mut self, pair: (usize, usize)) -> Option<Union> {
        let union = self.all.remove(&pair)?;
        self.ranked.remove(&(Gain(union.gain), pair));
        Some(union)
    }
}

/// A gain, in its order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gain(f64);

impl Eq for Gain {}

impl Ord for Gain {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Gain {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Chains<'a> {
    fn new(sizes: &'a [u64], counts: &'a [u64], jumps: &'a [Jump]) -> Self {
        let mut of = vec![Vec::new(); sizes.len()];
        for (index, jump) in jumps.iter().enumerate().filter(|(_, jump)| jump.count > 0) {
            of[jump.from].push(index);
            if jump.to != jump.from {
                of[jump.to].push(index);
            }
        }
        let mut chains = Self {
            sizes,
            jumps,
            of,
            chains: BTreeMap::new(),
            chain: (0..sizes.len()).collect(),
            at: vec![f64::NAN; sizes.len()],
        };
        for (block, (&size, &count)) in sizes.iter().zip(counts).enumerate() {
            let score = chains.score(&[block]);
            let size = size as f64;
            let chain = Chain { blocks: vec![block], score, runs: size * count as f64, size };
            chains.chains.insert(block, chain);
        }
        chains
    }

    /// Returns the score of blocks in this order.
    fn score(&mut self, blocks: &[usize]) -> f64 {
        let mut at = 0.0;
        for &block in blocks {
            self.at[block] = at;
            at += self.sizes[block] as f64;
        }
        let mut score = 0.0;
        for &block in blocks {
            for &index in &self.of[block] {
                let jump = &self.jumps[index];
                if jump.from == block && !self.at[jump.to].is_nan() {
                    let end = self.at[block] + self.sizes[block] as f64;
                    score += jump.count as f64 * suits(end, self.at[jump.to]);
                }
            }
        }
        blocks.iter().for_each(|&block| self.at[block] = f64::NAN);
        score
    }

    /// Merges chains until no union raises the score.
    fn merge_all(&mut self) {
        let mut unions = Unions::default();
        let mut open: BTreeSet<(usize, usize)> =
            self.jumps.iter().filter_map(|jump| self.pair(jump)).collect();
        loop {
            for pair in std::mem::take(&mut open) {
                let union = self.best(pair.0, pair.1);
                unions.insert(pair, union);
            }
            let Some(((one, other), union)) = unions.pop() else { return };
            self.unite(one, other, union);
            for chain in unions.take(one).into_iter().chain(unions.take(other)) {
                if chain != one && chain != other {
                    open.insert((one.min(chain), one.max(chain)));
                }
            }
        }
    }

    /// Returns the chains that a jump connects, in ascending order.
    fn pair(&self, jump: &Jump) -> Option<(usize, usize)> {
        let (from, to) = (self.chain[jump.from], self.chain[jump.to]);
        (from != to && jump.count > 0).then_some((from.min(to), from.max(to)))
    }

    /// Returns the best union of two chains.
    fn best(&mut self, one: usize, other: usize) -> Union {
        let (first, second) = (self.chains[&one].clone(), self.chains[&other].clone());
        let before = first.score + second.score;
        let mut orders = vec![
            [&first.blocks[..], &second.blocks[..]].concat(),
            [&second.blocks[..], &first.blocks[..]].concat(),
        ];
        for (outer, inner) in [(&first, &second), (&second, &first)] {
            if outer.blocks.len() > SPLIT {
                continue;
            }
            for at in (1..outer.blocks.len())
                .filter(|&at| self.is_joint(&outer.blocks, at, &inner.blocks))
            {
                let (begin, end) = outer.blocks.split_at(at);
                orders.push([begin, &inner.blocks, end].concat());
                orders.push([&inner.blocks, end, begin].concat());
                orders.push([end, begin, &inner.blocks].concat());
            }
        }
        // The entry comes first.
        let entry = |blocks: &[usize]| !blocks.contains(&0) || blocks.first() == Some(&0);
        let mut best = Union { gain: f64::MIN, score: 0.0, blocks: Vec::new() };
        for blocks in orders.into_iter().filter(|blocks| entry(blocks)) {
            let score = self.score(&blocks);
            if score - before > best.gain {
                best = Union { gain: score - before, score, blocks };
            }
        }
        best
    }

    /// Whether control goes on between a chain that is split and the blocks that are put there.
    fn is_joint(&self, outer: &[usize], at: usize, inner: &[usize]) -> bool {
        let leads = |from: usize, to: usize| {
            self.of[from].iter().any(|&index| {
                let jump = &self.jumps[index];
                (jump.from, jump.to) == (from, to)
            })
        };
        inner.first().is_some_and(|&first| leads(outer[at - 1], first))
            || inner.last().is_some_and(|&last| leads(last, outer[at]))
    }

    fn unite(&mut self, one: usize, other: usize, union: Union) {
        let Some(gone) = self.chains.remove(&other) else { return };
        union.blocks.iter().for_each(|&block| self.chain[block] = one);
        if let Some(chain) = self.chains.get_mut(&one) {
            chain.blocks = union.blocks;
            chain.score = union.score;
            chain.runs += gone.runs;
            chain.size += gone.size;
        }
    }

    /// Returns all chains one after the other: that of the entry, then the others by how often each
    /// of their bytes runs.
    fn concatenated(self) -> Vec<usize> {
        let mut all: Vec<Chain> = self.chains.into_values().collect();
        let density = |chain: &Chain| chain.runs / chain.size.max(1.0);
        all.sort_by(|one, other| {
            let entry = |chain: &Chain| chain.blocks.contains(&0);
            entry(other).cmp(&entry(one)).then(density(other).total_cmp(&density(one)))
        });
        all.into_iter().flat_map(|chain| chain.blocks).collect()
    }
}

/// Returns how well a jump from the end of a block at `from` to `to` suits caches.
fn suits(from: f64, to: f64) -> f64 {
    if from == to {
        return 1.0;
    }
    let (distance, reach) = if to > from { (to - from, FORWARD) } else { (from - to, BACKWARD) };
    NEAR * (1.0 - distance / reach).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jumps(all: &[(usize, usize, u64)]) -> Vec<Jump> {
        all.iter().map(|&(from, to, count)| Jump { from, to, count }).collect()
    }

    #[test]
    fn what_runs_follows_what_ran_and_what_does_not_comes_last() {
        // 0 -> 1 (rare) or 2; both -> 3.
        let jumps = jumps(&[(0, 1, 1), (0, 2, 99), (1, 3, 1), (2, 3, 99)]);
        assert_eq!(order(&[16; 4], &[100, 1, 99, 100], &jumps), [0, 2, 3, 1]);
    }

    #[test]
    fn a_loop_is_turned_so_that_its_hot_jump_falls_through() {
        // 0 -> 1; 1 (test) -> 2 (body) or 3 (exit); 2 -> 1.
        let jumps = jumps(&[(0, 1, 1), (1, 2, 1000), (2, 1, 1000), (1, 3, 1)]);
        let found = order(&[16; 4], &[1, 1001, 1000, 1], &jumps);
        assert_eq!(found[0], 0);
        let at = |block| found.iter().position(|&one| one == block);
        assert!(at(2).zip(at(1)).is_some_and(|(two, one)| one + 1 == two || two + 1 == one));
    }

    proptest! {
        #[test]
        fn every_block_comes_once_and_the_entry_first(
            all in prop::collection::vec((0..20_usize, 0..20_usize, 0..1000_u64), 0..60),
            sizes in prop::collection::vec(1..200_u64, 20),
        ) {
            let jumps = jumps(&all);
            let found = order(&sizes, &[1; 20], &jumps);
            prop_assert_eq!(found[0], 0);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            let original: Vec<usize> = (0..20).collect();
            prop_assert_eq!(&sorted, &original);
        }
    }
}
