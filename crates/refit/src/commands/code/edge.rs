//! The edges of a control-flow graph in words.

use refit_analysis::Module;
use refit_analysis::flow::{Edge, EdgeKind, Target};

/// Where an edge leads, for people.
pub(super) fn target(module: &Module, to: Target) -> String {
    match to {
        Target::Block(block) => block.to_string(),
        Target::Function(id) => module.function(id).name(),
        Target::Outside(address) => format!("0x{address:x}"),
        Target::Elsewhere => "another function, through a pointer".to_owned(),
        Target::Caller => "the caller".to_owned(),
        Target::Unknown => "unknown target".to_owned(),
    }
}

/// Where an edge leads and why.
pub(super) fn leads(module: &Module, edge: &Edge) -> String {
    match edge.to {
        Target::Caller => target(module, edge.to),
        to => format!("{} ({})", target(module, to), why(edge.kind)),
    }
}

/// Why control goes there.
pub(super) fn why(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Fall => "next",
        EdgeKind::Jump => "jump",
        EdgeKind::Branch => "branch",
        EdgeKind::Table => "table",
        EdgeKind::Return => "returned",
        EdgeKind::Unwind => "exception",
        EdgeKind::Call => "call",
    }
}
