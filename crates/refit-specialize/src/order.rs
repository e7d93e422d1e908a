//! The order of the blocks of a version.

use std::collections::BTreeSet;

use crate::graph::{End, Graph, To};

/// Returns the nodes that control can come to, in an order in which most ways fall through.
pub(crate) fn order(graph: &Graph) -> Vec<usize> {
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open = vec![0];
    while let Some(first) = open.pop() {
        let mut at = first;
        while at < graph.nodes.len() && seen.insert(at) {
            order.push(at);
            let (follows, other) = match graph.nodes[at].end {
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
