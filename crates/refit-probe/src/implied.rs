//! Finds blocks that need no flag: whether they were reached follows from the flags of others.
//!
//! A block is *implied* if it dominates each of its successors, and if control that enters it gets
//! to one of them at once: it has no call and no system call, and leaves the function nowhere. It
//! was reached exactly if one of its successors was. If a successor was, control has come through
//! the block, since every way to the successor leads through it. If the block was, control has gone
//! on to a successor. Successors lie deeper in the tree of dominators, so no block implies itself.
//!
//! An activation of the function that began before the flags were there may have passed a block
//! without being seen, and is seen at a successor: the block then counts as reached.

use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};
use refit_analysis::Module;
use refit_analysis::flow::{Block, Flow, Target};

use crate::body;

/// An implied block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Implied {
    /// Index of the block.
    pub block: u32,
    /// Indices of its successors.
    pub by: Vec<u32>,
}

/// Returns the implied blocks of a function, each after those that it is implied by.
pub fn implied(module: &Module, flow: &Flow) -> Vec<Implied> {
    let function = module.function(flow.function());
    let blocks = flow.blocks();
    if !body::is_understood(module, flow) {
        return Vec::new();
    }
    let mut graph = DiGraph::<(), ()>::with_capacity(blocks.len() + 1, flow.edges().len());
    let nodes: Vec<NodeIndex> = blocks.iter().map(|_| graph.add_node(())).collect();
    let outside = graph.add_node(());
    let mut torn = vec![false; blocks.len()];
    for address in body::entered_from_elsewhere(module, flow, function) {
        let Some((index, block)) = flow.block_at(address) else { continue };
        graph.add_edge(outside, nodes[index as usize], ());
        // Its beginning need not have run.
        torn[index as usize] |= block.start != address;
    }
    for edge in flow.edges() {
        if let Target::Block(to) = edge.to {
            graph.add_edge(nodes[edge.from as usize], nodes[to as usize], ());
        }
    }
    let dominators = simple_fast(&graph, outside);
    let mut found = Vec::new();
    for (index, block) in (0_u32..).zip(blocks) {
        let Some(by) = successors(flow, index, block).filter(|_| !torn[index as usize]) else {
            continue;
        };
        let above = |to: &u32| dominators.immediate_dominator(nodes[*to as usize]);
        if by.iter().all(|to| above(to) == Some(nodes[index as usize])) {
            let depth =
                dominators.strict_dominators(nodes[index as usize]).map_or(0, Iterator::count);
            found.push((depth, Implied { block: index, by }));
        }
    }
    found.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    found.into_iter().map(|(_, one)| one).collect()
}

/// Returns the blocks to one of which control gets at once from a block; `None` if it may get
/// elsewhere, or stay.
fn successors(flow: &Flow, index: u32, block: &Block) -> Option<Vec<u32>> {
    if !body::runs_through(flow, block) {
        return None;
    }
    let to = flow.edges_from(index).iter().map(|edge| match edge.to {
        Target::Block(to) => Some(to),
        _ => None,
    });
    to.collect::<Option<Vec<u32>>>().filter(|to| !to.is_empty())
}
