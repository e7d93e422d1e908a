//! The loops of a function.

use std::collections::BTreeSet;

use iced_x86::Mnemonic;
use refit_analysis::Flow;
use refit_analysis::flow::Target;

use crate::code::Code;

/// A loop: the blocks from which control can come back to its head without leaving it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Index of the block at which it is entered.
    pub head: u32,
    /// Its blocks.
    pub blocks: BTreeSet<u32>,
    /// Whether it pauses the processor (`pause`), as loops do that wait for another thread.
    pub pauses: bool,
}

/// The loops of a function.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    /// The smallest ones first.
    all: Vec<Loop>,
}

impl Loops {
    /// Finds the loops of a function.
    pub fn of(code: &Code<'_>) -> Self {
        let count = code.flow.blocks().len();
        let next: Vec<Vec<u32>> = (0..count as u32).map(|one| followers(&code.flow, one)).collect();
        let mut before = vec![Vec::new(); count];
        for (from, to) in next.iter().enumerate() {
            to.iter().for_each(|&to| before[to as usize].push(from as u32));
        }
        let mut all: Vec<Loop> = Vec::new();
        for (from, head) in back_edges(&next) {
            let blocks = body(&before, from, head);
            match all.iter_mut().find(|one| one.head == head) {
                Some(one) => one.blocks.extend(blocks),
                None => all.push(Loop { head, blocks, pauses: false }),
            }
        }
        let pauses = |at: usize| code.steps[at].instruction.mnemonic() == Mnemonic::Pause;
        for one in &mut all {
            one.pauses =
                one.blocks.iter().any(|&block| code.of_block(block).into_iter().any(pauses));
        }
        all.sort_by_key(|one| one.blocks.len());
        Self { all }
    }

    /// Returns the loops around a block, the innermost first.
    pub fn around(&self, block: u32) -> impl Iterator<Item = &Loop> {
        self.all.iter().filter(move |one| one.blocks.contains(&block))
    }
}

fn followers(flow: &Flow, block: u32) -> Vec<u32> {
    let to = flow.edges_from(block).iter().map(|edge| edge.to);
    to.filter_map(|to| if let Target::Block(to) = to { Some(to) } else { None }).collect()
}

/// Returns the edges that lead back to a block through which control came.
fn back_edges(next: &[Vec<u32>]) -> Vec<(u32, u32)> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let (mut state, mut found) = (vec![State::New; next.len()], Vec::new());
    for root in 0..next.len() as u32 {
        if state[root as usize] != State::New {
            continue;
        }
        state[root as usize] = State::Open;
        let mut path = vec![(root, 0)];
        while let Some((block, number)) = path.last_mut() {
            let block = *block;
            let Some(&to) = next[block as usize].get(*number) else {
                state[block as usize] = State::Done;
                path.pop();
                continue;
            };
            *number += 1;
            match state[to as usize] {
                State::New => {
                    state[to as usize] = State::Open;
                    path.push((to, 0));
                }
                State::Open => found.push((block, to)),
                State::Done => {}
            }
        }
    }
    found
}

/// Returns the blocks from which control comes to `from` without passing `head`.
fn body(before: &[Vec<u32>], from: u32, head: u32) -> BTreeSet<u32> {
    let (mut blocks, mut left) = (BTreeSet::from([head]), vec![from]);
    while let Some(block) = left.pop() {
        if blocks.insert(block) {
            left.extend(&before[block as usize]);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_loops_have_their_own_bodies() {
        // 0 → 1 → 2 → 2, 2 → 3 → 1, 3 → 4
        let next = [vec![1], vec![2], vec![2, 3], vec![1, 4], vec![]];
        let mut edges = back_edges(&next);
        edges.sort_unstable();
        assert_eq!(edges, [(2, 2), (3, 1)]);
        let mut before = vec![Vec::new(); 5];
        for (from, to) in next.iter().enumerate() {
            to.iter().for_each(|&to: &u32| before[to as usize].push(from as u32));
        }
        assert_eq!(body(&before, 2, 2), BTreeSet::from([2]));
        assert_eq!(body(&before, 3, 1), BTreeSet::from([1, 2, 3]));
    }
}
