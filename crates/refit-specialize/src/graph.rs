//! The blocks that a version has, each with what is known at its beginning.
//!
//! Usually a block is there once, and what is known at its beginning is what is known on all ways
//! to it. Since states lose what differs, this ends. Then each loop is tried out with its blocks
//! there several times, once for each state: this is how loops of a known count are unrolled. That
//! stays if fewer branches are left undecided. A block that would be there too often is there once
//! all the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iced_x86::{FlowControl, OpKind};

use crate::code::Code;
use crate::evaluate::Evaluator;
use crate::node::{End, Node, To};
use crate::order::{loops, order};
use crate::set::Set;
use crate::state::State;

/// Number of times that a loop is tried out, each time with one more of its blocks there once.
const RESTARTS: usize = 5;
/// Maximum number of blocks that are built for loops that are tried out.
const MOST_TRIED: usize = 20_000;

/// Limits of the growth of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of times that a block may be there.
    pub times: usize,
    /// Number of instructions of all blocks that are there more than once.
    pub instructions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { times: 24, instructions: 400 }
    }
}

/// The blocks of a version; the first one is that of the entry.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The blocks.
    pub nodes: Vec<Node>,
}

impl Graph {
    /// Follows a function from a state at its entry.
    pub fn new(code: &Code, entry: &State, evaluator: &mut Evaluator<'_>, limits: Limits) -> Self {
        let mut once: BTreeSet<usize> = (0..code.blocks.len()).collect();
        let Some(mut best) = Self::with(code, entry, evaluator, limits, &mut once) else {
            return Self::default();
        };
        // What is tried out takes no longer than so many blocks.
        let mut left = MOST_TRIED;
        for blocks in loops(&best.nodes) {
            let Some(rest) = left.checked_sub(best.nodes.len() * RESTARTS) else { break };
            left = rest;
            let mut some: BTreeSet<usize> = once.difference(&blocks).copied().collect();
            let other = Self::with(code, entry, evaluator, limits, &mut some);
            let fewer = |other: &Self| other.undecided() < best.undecided();
            if let Some(other) = other.filter(fewer) {
                (best, once) = (other, some);
            }
        }
        best
    }

    /// Follows a function with the blocks in `once` there once; adds those that would be there too
    /// often. `None` if these are many.
    fn with(
        code: &Code,
        entry: &State,
        evaluator: &mut Evaluator<'_>,
        limits: Limits,
        once: &mut BTreeSet<usize>,
    ) -> Option<Self> {
        for _ in 0..RESTARTS {
            let (nodes, of) = (Vec::new(), BTreeMap::new());
            let mut building = Building { code, limits, once, nodes, of };
            match building.all(entry, evaluator) {
                Ok(()) => return Some(Self { nodes: building.nodes }),
                Err(block) => _ = once.insert(block),
            }
        }
        None
    }

    /// Counts the branches of which it is not known whether they are taken.
    fn undecided(&self) -> usize {
        let there = order(&self.nodes).into_iter();
        there.filter(|&node| matches!(self.nodes[node].end, End::Branches(..))).count()
    }
}

struct Building<'c> {
    code: &'c Code,
    limits: Limits,
    once: &'c BTreeSet<usize>,
    nodes: Vec<Node>,
    /// The nodes of each block.
    of: BTreeMap<usize, Vec<usize>>,
}

impl Building<'_> {
    /// Builds all nodes; the error is a block that is there too often.
    fn all(&mut self, entry: &State, evaluator: &mut Evaluator<'_>) -> Result<(), usize> {
        let mut open = VecDeque::new();
        self.node(self.code.entry, entry.clone(), &mut open)?;
        while let Some(at) = open.pop_front() {
            let Node { block, mut state, .. } = self.nodes[at].clone();
            let members = &self.code.blocks[block].members;
            let Some((_, others)) = members.split_last() else { continue };
            for one in others {
                evaluator.step(&one.instruction, &mut state);
            }
            self.nodes[at].end = self.end(block, state, evaluator, &mut open)?;
        }
        Ok(())
    }

    fn end(
        &mut self,
        block: usize,
        mut state: State,
        evaluator: &mut Evaluator<'_>,
        open: &mut VecDeque<usize>,
    ) -> Result<End, usize> {
        let Some(last) = self.code.blocks[block].members.last() else { return Ok(End::Leaves) };
        let one = &last.instruction;
        let (direct, behind) = (one.op0_kind() == OpKind::NearBranch64, one.next_ip());
        match one.flow_control() {
            FlowControl::UnconditionalBranch if direct => {
                Ok(End::Goes(self.to(one.near_branch64(), state, open)?))
            }
            FlowControl::ConditionalBranch if direct => {
                let taken = evaluator.is_taken(one, &state);
                let taken = taken.filter(|_| one.code().is_jcc_short_or_near());
                evaluator.step(one, &mut state);
                Ok(match taken {
                    Some(true) => End::Goes(self.to(one.near_branch64(), state, open)?),
                    Some(false) => End::Goes(self.to(behind, state, open)?),
                    None => {
                        let otherwise = self.to(behind, state.clone(), open)?;
                        End::Branches(self.to(one.near_branch64(), state, open)?, otherwise)
                    }
                })
            }
            FlowControl::IndirectBranch => match evaluator.target(one, &state) {
                Some(to) if self.code.block_at(to).is_some() => {
                    Ok(End::Goes(self.to(to, state, open)?))
                }
                _ => Ok(End::Leaves),
            },
            FlowControl::Call | FlowControl::IndirectCall => {
                let lost = if last.preserves { Set::CHANGED_BY_CALLS } else { Set::ALL };
                state.forget(lost);
                Ok(match self.code.blocks[block].returns {
                    true => End::Returns(self.to(behind, state, open)?),
                    false => End::Returns(To::Program(behind)),
                })
            }
            FlowControl::Next => {
                evaluator.step(one, &mut state);
                Ok(End::Goes(self.to(behind, state, open)?))
            }
            _ => Ok(End::Leaves),
        }
    }

    /// Returns where a way leads on which this is known.
    fn to(&mut self, address: u64, state: State, open: &mut VecDeque<usize>) -> Result<To, usize> {
        match self.code.block_at(address) {
            Some(block) => Ok(To::Node(self.node(block, state, open)?)),
            None => Ok(To::Program(address)),
        }
    }

    /// Returns the node of a block on a way on which this is known.
    fn node(
        &mut self,
        block: usize,
        mut state: State,
        open: &mut VecDeque<usize>,
    ) -> Result<usize, usize> {
        // What is not read makes no difference.
        state.forget(!self.code.live_at(self.code.blocks[block].start));
        let there = self.of.entry(block).or_default();
        if let Some(&same) = there.iter().find(|&&node| self.nodes[node].state == state) {
            return Ok(same);
        }
        if self.once.contains(&block)
            && let Some(&node) = there.first()
        {
            let both = self.nodes[node].state.or_else(&state);
            if both != self.nodes[node].state {
                self.nodes[node].state = both;
                open.push_back(node);
            }
            return Ok(node);
        }
        let node = self.nodes.len();
        there.push(node);
        let times = there.len();
        self.nodes.push(Node { block, state, end: End::Leaves });
        open.push_back(node);
        if times > self.limits.times {
            return Err(block);
        }
        if times > 1 && self.repeated() > self.limits.instructions {
            let again = self.of.iter().filter(|(_, nodes)| nodes.len() > 1);
            let often = again
                .max_by_key(|(block, nodes)| nodes.len() * self.code.blocks[**block].members.len());
            return Err(often.map_or(block, |(&block, _)| block));
        }
        Ok(node)
    }

    /// Returns the number of instructions that are there again.
    fn repeated(&self) -> usize {
        let size = |block: &usize| self.code.blocks[*block].members.len();
        self.of.iter().map(|(block, nodes)| (nodes.len() - 1) * size(block)).sum()
    }
}
