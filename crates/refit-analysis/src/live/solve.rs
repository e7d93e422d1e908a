//! Solves liveness within one function: the least solution, backwards from the exits.

use super::outline::{Callee, Node, Outline, Summary, way};
use super::set::{Set, abi};
use crate::functions::FunctionId;

/// Live sets at the ways out of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// The needs of the caller.
    pub(crate) caller: Set,
    /// The needs at an unknown target.
    pub(crate) unknown: Set,
}

/// Live sets before and after each block.
#[derive(Debug, Default)]
pub(crate) struct Solution {
    /// Before its first instruction.
    pub(crate) before: Vec<Set>,
    /// After its last instruction; if that is a call, after the call has returned.
    pub(crate) after: Vec<Set>,
}

/// Solves `outline` into `solution`; `summary` returns the summaries of called functions.
pub(crate) fn solve(
    outline: &Outline,
    ends: Ends,
    summary: &impl Fn(FunctionId) -> Summary,
    solution: &mut Solution,
) {
    let count = outline.nodes.len();
    solution.before.clear();
    solution.before.resize(count, Set::NONE);
    solution.after.clear();
    solution.after.resize(count, Set::NONE);
    // Blocks by descending address are nearly in the order in which they depend on each other. Each
    // round adds an element to some set, or is the last.
    let mut changed = true;
    while changed {
        changed = false;
        for i in (0..count).rev() {
            let node = &outline.nodes[i];
            let after = after(outline, node, ends, summary, &solution.before);
            let called = call(outline, node, after, summary);
            let before = node.reads | called.without(node.kills);
            solution.after[i] = after;
            if before != solution.before[i] {
                solution.before[i] = before;
                changed = true;
            }
        }
    }
}

/// Returns the set that is live after the last instruction of `node`, once a call there has
/// returned.
fn after(
    outline: &Outline,
    node: &Node,
    ends: Ends,
    summary: &impl Fn(FunctionId) -> Summary,
    before: &[Set],
) -> Set {
    let mut set = Set::NONE;
    for &next in outline.next(node) {
        set |= before[next as usize];
    }
    for id in outline.tails(node) {
        let Summary { reads, keeps } = summary(id);
        set |= reads | abi::KEPT | (ends.caller & keeps);
    }
    if node.ways & way::CALLER != 0 {
        set |= ends.caller;
    }
    if node.ways & way::ELSEWHERE != 0 {
        set |= abi::READ | (ends.caller & abi::PRESERVED);
    }
    if node.ways & way::UNKNOWN != 0 {
        set |= ends.unknown;
    }
    if node.ways & way::NOWHERE != 0 {
        set |= abi::KEPT;
    }
    if !outline.pads(node).is_empty() {
        // The unwinder restores what functions preserve and overwrites all else.
        let pads = outline.pads(node).iter();
        set |= pads.fold(Set::NONE, |all, pad| all | before[*pad as usize]) & abi::KEPT;
    }
    set
}

/// Returns the set that is live before the call at the end of `node`, given the set after it.
pub(crate) fn call(
    outline: &Outline,
    node: &Node,
    after: Set,
    summary: &impl Fn(FunctionId) -> Summary,
) -> Set {
    let Summary { reads, keeps } = match node.callee {
        Callee::None => return after,
        _ if outline.convention_go => Summary::ANY,
        Callee::Known(id) => summary(id),
        Callee::Abi => Summary::ABI,
        Callee::Anybody => Summary::ANY,
    };
    reads | abi::KEPT | (after & keeps)
}
