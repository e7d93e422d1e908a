//! Calls in bytes that no traversal reached but that may nevertheless be code.
//!
//! A caller there may need registers that the callee preserves beyond what the ABI guarantees. So
//! every byte sequence that would be a direct call of some function's entry counts as a call, at
//! any offset.

use std::ops::Range;

use crate::flow::walk::Walk;
use crate::flow::world::World;
use crate::functions::{Function, FunctionId};

/// Opcodes of `call rel32` and `jmp rel32`.
const OPCODES: [u8; 2] = [0xe8, 0xe9];

/// Returns functions that appear to be called from bytes of `function` that `walk` did not reach.
pub(crate) fn called_from_gaps(world: &World, function: &Function, walk: &Walk) -> Vec<FunctionId> {
    let mut code: Vec<Range<u64>> = walk.code.iter().map(|i| i.ip()..i.next_ip()).collect();
    code.sort_unstable_by_key(|r| r.start);
    let mut called = Vec::new();
    for range in &function.ranges {
        let mut at = range.start;
        for instruction in code.iter().filter(|i| range.contains(&i.start)) {
            scan(world, at..instruction.start, &mut called);
            at = at.max(instruction.end);
        }
        scan(world, at..range.end, &mut called);
    }
    called
}

/// Returns functions that appear to be called from bytes that belong to no function.
pub(crate) fn called_from_nowhere(world: &World) -> Vec<FunctionId> {
    let mut ranges: Vec<Range<u64>> =
        world.functions.iter().flat_map(|f| f.ranges.iter().cloned()).collect();
    ranges.sort_unstable_by_key(|r| r.start);
    let mut called = Vec::new();
    let mut ranges = ranges.into_iter().peekable();
    for code in world.image.code() {
        let mut at = code.addresses.start;
        while let Some(range) = ranges.next_if(|r| r.start < code.addresses.end) {
            scan(world, at..range.start, &mut called);
            at = at.max(range.end);
        }
        scan(world, at..code.addresses.end, &mut called);
    }
    called
}

fn scan(world: &World, gap: Range<u64>, called: &mut Vec<FunctionId>) {
    if gap.start >= gap.end {
        return;
    }
    let length = usize::try_from(gap.end - gap.start).unwrap_or(0);
    let Some(bytes) = world.image.bytes(gap.start, length) else { return };
    for (i, window) in bytes.windows(5).enumerate() {
        let [opcode, distance @ ..] = window else { continue };
        if !OPCODES.contains(opcode) {
            continue;
        }
        let Ok(distance) = <[u8; 4]>::try_from(distance) else { continue };
        let next = gap.start + i as u64 + 5;
        let target = next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance)));
        called.extend(world.entered_at(target));
    }
}
