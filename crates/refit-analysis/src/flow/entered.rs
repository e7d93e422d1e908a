//! Bytes of a function that must not change: those that control enters, and those that instructions
//! read.

use std::ops::Range;

use iced_x86::{Instruction, Mnemonic};

use super::graph::{Block, Edge, EdgeKind, Target};

/// Returns where blocks begin that are entered other than by falling through, and those that begin
/// within an instruction: `begins` says whether one begins at an address.
pub(crate) fn entered<'f>(
    blocks: &'f [Block],
    edges: &'f [Edge],
    begins: impl Fn(u64) -> bool + 'f,
) -> impl Iterator<Item = u64> + 'f {
    let edges = edges.iter().filter(|edge| edge.kind != EdgeKind::Fall);
    let entered = edges.filter_map(|edge| match edge.to {
        Target::Block(block) => blocks.get(block as usize).map(|block| block.start),
        _ => None,
    });
    let starts = blocks.iter().map(|block| block.start);
    entered.chain(starts.filter(move |&start| !begins(start)))
}

/// Returns the bytes that an instruction reads as data, if some of them are in these ranges of
/// code. V8's compilers load a constant from within an earlier instruction that contains it.
pub fn constant_read(instruction: &Instruction, code: &[Range<u64>]) -> Option<Range<u64>> {
    if !instruction.is_ip_rel_memory_operand() || instruction.mnemonic() == Mnemonic::Nop {
        return None;
    }
    // An address that is only computed has no size.
    let size = instruction.memory_size().size() as u64;
    let begin = instruction.memory_displacement64();
    let own = |range: &Range<u64>| range.start < begin.wrapping_add(size) && begin < range.end;
    (size > 0 && code.iter().any(own)).then(|| begin..begin.saturating_add(size))
}
