//! The beginnings of functions: facts that are enough to insert code at an entry, so that a program
//! with many thousand functions can be watched without analysing each of them again.

use std::ops::Range;

use iced_x86::{Code, Instruction, Mnemonic};
use serde::{Deserialize, Serialize};

use crate::flow::build::Shape;
use crate::flow::walk::Walk;
use crate::flow::world::World;
use crate::flow::{EdgeKind, Target};
use crate::functions::{Convention, Function, FunctionId};
use crate::image::Sequence;
use crate::registers::Live;

/// The first instructions of a function, behind an `endbr64`. Only functions whose jumps are all
/// understood have one, which nothing enters but at their entry, which do not read their own code
/// and hold no restartable sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beginning {
    /// Bytes of instructions from there on that control enters only at the first one, within the
    /// first range of the function; at most [`MOST`].
    pub room: u8,
    /// The live set before the first of these instructions.
    pub live: Live,
}

/// Maximum number of bytes that are examined: more than a jump ever displaces.
pub const MOST: u8 = 32;

/// Returns the beginning of a function with this code; `live` has the live sets of its
/// instructions, in the order of `shape.sorted`.
pub(crate) fn beginning(
    world: &World<'_>,
    id: FunctionId,
    (walk, shape, live): (&Walk, &Shape, &[Live]),
) -> Option<Beginning> {
    let function = world.function(id);
    let range = function.ranges.first()?;
    let alone = world.inner_of(function).next().is_none();
    let simple = function.convention == Convention::SystemV
        && alone
        && !shape.edges.iter().any(|edge| edge.to == Target::Unknown)
        && !world.image.sequences().iter().any(|one| touches(one, function))
        && !walk.code.iter().any(|one| reads_code(one, function));
    let mark = &walk.code[walk.index_of(function.entry)? as usize];
    let first = if mark.code() == Code::Endbr64 { mark.next_ip() } else { mark.ip() };
    let address = |index: &u32| walk.code[*index as usize].ip();
    let at = shape.sorted.binary_search_by_key(&first, address).ok()?;
    if !simple || !range.contains(&first) {
        return None;
    }
    let entered = entered(walk, shape).filter(|&address| address > first);
    let next = entered.min().unwrap_or(range.end).min(range.end);
    let next = next.min(instructions_end(walk, first));
    let room = u8::try_from(next - first).unwrap_or(MOST).min(MOST);
    Some(Beginning { room, live: live[at] })
}

/// Returns the address up to which instructions follow each other, as far as it matters. What
/// follows may be a function that nothing names.
fn instructions_end(walk: &Walk, first: u64) -> u64 {
    let mut at = first;
    while at < first + u64::from(MOST) {
        let Some(index) = walk.index_of(at) else { break };
        at = walk.code[index as usize].next_ip();
    }
    at
}

fn touches(sequence: &Sequence, function: &Function) -> bool {
    let Range { start, end } = sequence.addresses;
    let overlaps = |range: &Range<u64>| range.start < end && start < range.end;
    function.ranges.iter().any(|range| overlaps(range) || range.contains(&sequence.abort))
}

/// Whether an instruction reads the function's code as data.
fn reads_code(instruction: &Instruction, function: &Function) -> bool {
    if !instruction.is_ip_rel_memory_operand() || instruction.mnemonic() == Mnemonic::Nop {
        return false;
    }
    // An address that is only computed has no size.
    let size = instruction.memory_size().size() as u64;
    let begin = instruction.memory_displacement64();
    let read = |range: &Range<u64>| range.start < begin.wrapping_add(size) && begin < range.end;
    size > 0 && function.ranges.iter().any(read)
}

/// Returns where blocks begin that are entered other than by falling through, and those that begin
/// within an instruction.
fn entered(walk: &Walk, shape: &Shape) -> impl Iterator<Item = u64> {
    let edges = shape.edges.iter().filter(|edge| edge.kind != EdgeKind::Fall);
    let entered = edges.filter_map(|edge| match edge.to {
        Target::Block(block) => shape.blocks.get(block as usize).map(|block| block.start),
        _ => None,
    });
    let inside = shape.blocks.iter().map(|block| block.start);
    let inside = inside.filter(|&start| walk.index_of(start).is_none());
    entered.chain(inside)
}
