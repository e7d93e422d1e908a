//! The order of the blocks of a version, and its loops.

use std::collections::BTreeSet;

use crate::node::{End, Node, To, next};

/// Returns the nodes that control can come to, in an order in which most ways fall through.
pub(crate) fn order(nodes: &[Node]) -> Vec<usize> {
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open = vec![0];
    while let Some(first) = open.pop() {
        let mut at = first;
        while at < nodes.len() && seen.insert(at) {
            order.push(at);
            let (follows, other) = match nodes[at].end {
                End::Leaves => break,
                End::Goes(to) | End::Returns(to) => (to, None),
                End::Branches(to, otherwise) => (otherwise, Some(to)),
            };
            let new = |to: To| match to {
                To::Node(node) => Some(node).filter(|node| !seen.contains(node)),
                To::Program(_) => None,
            };
            let (follows, other) = (new(follows), other.and_then(new));
            match (follows, other) {
                (Some(follows), other) => {
                    open.extend(other);
                    at = follows;
                }
                (None, Some(other)) => at = other,
                (None, None) => break,
            }
        }
    }
    order
}

/// Returns the loops: the blocks of each set of nodes from each of which control can come to each
/// other (Tarjan's strongly connected components).
pub(crate) fn loops(nodes: &[Node]) -> Vec<BTreeSet<usize>> {
    let mut search = Search {
        nodes,
        numbers: vec![None; nodes.len()],
        lowest: vec![0; nodes.len()],
        stack: Vec::new(),
        found: Vec::new(),
    };
    for node in order(nodes) {
        if search.numbers[node].is_none() {
            search.from(node);
        }
    }
    search.found
}

struct Search<'n> {
    nodes: &'n [Node],
    numbers: Vec<Option<usize>>,
    lowest: Vec<usize>,
    stack: Vec<usize>,
    found: Vec<BTreeSet<usize>>,
}

impl Search<'_> {
    /// Searches from a node, with a list of the nodes on the way and of those that follow each.
    fn from(&mut self, first: usize) {
        let mut way = vec![(first, self.enter(first))];
        let mut count = 1;
        while let Some((node, next)) = way.last_mut() {
            let node = *node;
            let Some(next) = next.pop() else {
                way.pop();
                if let Some(&(before, _)) = way.last() {
                    self.lowest[before] = self.lowest[before].min(self.lowest[node]);
                }
                self.close(node);
                continue;
            };
            match self.numbers[next] {
                None => {
                    self.numbers[next] = Some(count);
                    count += 1;
                    way.push((next, self.enter(next)));
                }
                Some(number) if self.stack.contains(&next) => {
                    self.lowest[node] = self.lowest[node].min(number);
                }
                Some(_) => {}
            }
        }
    }

    fn enter(&mut self, node: usize) -> Vec<usize> {
        let number = *self.numbers[node].get_or_insert(0);
        self.lowest[node] = number;
        self.stack.push(node);
        next(self.nodes, node).collect()
    }

    /// Takes a component off the stack if the node is its first one.
    fn close(&mut self, node: usize) {
        if self.numbers[node] != Some(self.lowest[node]) {
            return;
        }
        let from = self.stack.iter().rposition(|&one| one == node).unwrap_or(0);
        let nodes = self.stack.split_off(from);
        let again = nodes.len() > 1 || next(self.nodes, node).any(|next| next == node);
        if again {
            self.found.push(nodes.iter().map(|&one| self.nodes[one].block).collect());
        }
    }
}
