//! The blocks of a version, and the ways between them.

use crate::state::State;

/// A block of a version.
#[derive(Clone, Debug)]
pub struct Node {
    /// Index of the block.
    pub block: usize,
    /// The state at its beginning, as far as it is known.
    pub state: State,
    /// Where control goes from its end.
    pub end: End,
}

/// The target of a way out of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Another block of the version.
    Node(usize),
    /// An address of the program.
    Program(u64),
}

/// Where control goes from the end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last instruction stays and leaves the function, or jumps through a table.
    Leaves,
    /// Control goes on here; the last instruction stays, if it is no jump.
    Goes(To),
    /// A call, which stays, returns here.
    Returns(To),
    /// A conditional jump stays: where it leads, and where control goes otherwise.
    Branches(To, To),
}

/// Returns the blocks to which control goes from a block.
pub fn next(nodes: &[Node], node: usize) -> impl Iterator<Item = usize> {
    let (one, other) = match nodes[node].end {
        End::Leaves => (None, None),
        End::Goes(to) | End::Returns(to) => (Some(to), None),
        End::Branches(to, otherwise) => (Some(to), Some(otherwise)),
    };
    [one, other].into_iter().flatten().filter_map(|to| match to {
        To::Node(node) => Some(node),
        To::Program(_) => None,
    })
}
