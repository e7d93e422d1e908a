//! Summaries of all functions: the registers that callees read and preserve, and that callers need.
//!
//! Both are least fixed points over the call graph, computed with a work list. Sets only grow, so
//! each function is solved again at most as often as the sets of its callees (or callers) have
//! elements; in practice once or twice, since the order of the work follows the graph.

use std::collections::VecDeque;

use super::outline::{Callee, Outline, Summary, way};
use super::set::{Set, abi};
use super::solve::{Ends, Solution, solve};
use crate::functions::FunctionId;

/// Summaries by the indices of functions.
#[derive(Debug, Default)]
pub(crate) struct Summaries {
    pub(crate) summaries: Vec<Summary>,
    /// The needs of callers when each function returns.
    pub(crate) exits: Vec<Set>,
}

/// Summarises all functions. `obscure` are those that are called by code that was not understood.
pub(crate) fn summarise(outlines: &[Outline], obscure: &[FunctionId]) -> Summaries {
    let graph = Graph::new(outlines);
    let summaries = upwards(outlines, &graph);
    let exits = downwards(outlines, &graph, &summaries, obscure);
    Summaries { summaries, exits }
}

/// The call graph.
struct Graph {
    callers: Vec<Vec<u32>>,
    /// Callees before callers, as far as there are no cycles.
    order: Vec<u32>,
}

impl Graph {
    fn new(outlines: &[Outline]) -> Self {
        let mut callers = vec![Vec::new(); outlines.len()];
        let mut callees = Vec::with_capacity(outlines.len());
        for (i, outline) in outlines.iter().enumerate() {
            let mut list: Vec<u32> = outline.callees().map(|id| id.0).collect();
            list.sort_unstable();
            list.dedup();
            for callee in &list {
                callers[*callee as usize].push(i as u32);
            }
            callees.push(list);
        }
        Self { callers, order: post_order(&callees) }
    }
}

fn post_order(callees: &[Vec<u32>]) -> Vec<u32> {
    let mut order = Vec::with_capacity(callees.len());
    let mut seen = vec![false; callees.len()];
    let mut path: Vec<(u32, usize)> = Vec::new();
    for root in 0..callees.len() as u32 {
        if std::mem::replace(&mut seen[root as usize], true) {
            continue;
        }
        path.push((root, 0));
        while let Some((function, next)) = path.last_mut() {
            let Some(&callee) = callees[*function as usize].get(*next) else {
                order.push(*function);
                path.pop();
                continue;
            };
            *next += 1;
            if !std::mem::replace(&mut seen[callee as usize], true) {
                path.push((callee, 0));
            }
        }
    }
    order
}

/// Work list of functions; each is in it at most once.
struct List {
    queue: VecDeque<u32>,
    waiting: Vec<bool>,
}

impl List {
    fn new(order: impl Iterator<Item = u32>, count: usize) -> Self {
        Self { queue: order.collect(), waiting: vec![true; count] }
    }

    fn pop(&mut self) -> Option<u32> {
        let function = self.queue.pop_front()?;
        self.waiting[function as usize] = false;
        Some(function)
    }

    fn push(&mut self, function: u32) {
        if !std::mem::replace(&mut self.waiting[function as usize], true) {
            self.queue.push_back(function);
        }
    }
}

fn upwards(outlines: &[Outline], graph: &Graph) -> Vec<Summary> {
    let none = Summary { reads: Set::NONE, keeps: Set::NONE };
    let mut summaries = vec![none; outlines.len()];
    let mut list = List::new(graph.order.iter().copied(), outlines.len());
    let mut solution = Solution::default();
    while let Some(i) = list.pop() {
        let new = summary(&outlines[i as usize], &summaries, &mut solution);
        if std::mem::replace(&mut summaries[i as usize], new) != new {
            graph.callers[i as usize].iter().for_each(|caller| list.push(*caller));
        }
    }
    summaries
}

fn summary(outline: &Outline, summaries: &[Summary], solution: &mut Solution) -> Summary {
    if outline.nodes.is_empty() || outline.convention_go {
        return Summary::ANY;
    }
    let known = |id: FunctionId| summaries[id.0 as usize];
    let entry = outline.entry as usize;
    let mut at_entry = |caller| {
        solve(outline, Ends { caller, unknown: Set::ALL }, &known, solution);
        solution.before[entry]
    };
    // A function passes sets on element by element, independently. So the set at its entry consists
    // of the elements that the function reads, and of those that its caller needs and that it may
    // preserve.
    Summary { reads: at_entry(Set::NONE), keeps: at_entry(Set::ALL) }
}

fn downwards(
    outlines: &[Outline],
    graph: &Graph,
    summaries: &[Summary],
    obscure: &[FunctionId],
) -> Vec<Set> {
    let left_alone = left_alone(outlines, graph);
    let mut exits = vec![abi::RESULTS | abi::KEPT; outlines.len()];
    for (i, outline) in outlines.iter().enumerate() {
        if outline.convention_go || outline.nodes.is_empty() {
            exits[i] = Set::ALL;
        }
        for id in &outline.disturbs {
            exits[id.0 as usize] = Set::ALL;
        }
        if outline.unknown {
            // The code at an unknown target may need the registers that functions called here
            // preserve.
            for id in outline.callees() {
                exits[id.0 as usize] |= left_alone[id.0 as usize];
            }
        }
    }
    for id in obscure {
        exits[id.0 as usize] |= left_alone[id.0 as usize];
    }
    let known = |id: FunctionId| summaries[id.0 as usize];
    let mut list = List::new(graph.order.iter().rev().copied(), outlines.len());
    let mut solution = Solution::default();
    while let Some(i) = list.pop() {
        let (outline, caller) = (&outlines[i as usize], exits[i as usize]);
        solve(outline, Ends { caller, unknown: abi::READ }, &known, &mut solution);
        for (node, after) in outline.nodes.iter().zip(&solution.after) {
            let needs = |exits: &mut Vec<Set>, list: &mut List, id: FunctionId, set: Set| {
                let before = exits[id.0 as usize];
                exits[id.0 as usize] |= set;
                if exits[id.0 as usize] != before {
                    list.push(id.0);
                }
            };
            if let Callee::Known(id) = node.callee {
                let set = if outline.convention_go { Set::ALL } else { *after };
                needs(&mut exits, &mut list, id, set);
            }
            for id in outline.tails(node) {
                needs(&mut exits, &mut list, id, caller);
            }
        }
    }
    exits
}

/// Returns the registers that each function preserves on all paths, as far as its code shows.
fn left_alone(outlines: &[Outline], graph: &Graph) -> Vec<Set> {
    let own = |outline: &Outline| {
        let abi = outline
            .nodes
            .iter()
            .any(|node| node.callee == Callee::Abi || node.ways & way::ELSEWHERE != 0);
        outline.writes | if abi { !abi::PRESERVED } else { Set::NONE }
    };
    let mut changed: Vec<Set> = outlines.iter().map(own).collect();
    let mut list = List::new(graph.order.iter().copied(), outlines.len());
    while let Some(i) = list.pop() {
        let callees = outlines[i as usize].callees();
        let all = callees.fold(changed[i as usize], |all, id| all | changed[id.0 as usize]);
        if std::mem::replace(&mut changed[i as usize], all) != all {
            graph.callers[i as usize].iter().for_each(|caller| list.push(*caller));
        }
    }
    changed.into_iter().map(|set| !set).collect()
}
