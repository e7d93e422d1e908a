//! The beginnings of functions: facts that are enough to insert code at an entry, so that a program
//! with many thousand functions can be watched without analysing each of them again.

use iced_x86::Code;
use serde::{Deserialize, Serialize};

use crate::flow::build::Shape;
use crate::flow::walk::Walk;
use crate::flow::world::World;
use crate::flow::{Target, constant_read, entered};
use crate::functions::{Convention, FunctionId};
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
        && !world.image.sequences().iter().any(|one| one.touches(&function.ranges))
        && !walk.code.iter().any(|one| constant_read(one, &function.ranges).is_some());
    let mark = &walk.code[walk.index_of(function.entry)? as usize];
    let first = if mark.code() == Code::Endbr64 { mark.next_ip() } else { mark.ip() };
    let address = |index: &u32| walk.code[*index as usize].ip();
    let at = shape.sorted.binary_search_by_key(&first, address).ok()?;
    if !simple || !range.contains(&first) {
        return None;
    }
    let begins = |address| walk.index_of(address).is_some();
    let entered = entered(&shape.blocks, &shape.edges, begins).filter(|&address| address > first);
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
