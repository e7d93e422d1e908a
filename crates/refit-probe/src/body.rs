//! Describes whole functions for copying them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions};

use refit_analysis::Module;
use refit_analysis::flow::{Block, EdgeKind, Flow, Marks, Target};
use refit_analysis::functions::{Convention, Function};
use refit_splice::{Body, Part, Procedures};

use crate::code::{decode, entered_inside, fills, padding};
use crate::sequences::Sequences;

/// Returns the function as it is in the program, `bias` bytes from its address in the file; `None`
/// if it cannot be copied: some ways to it or within it are unknown, or its faults are part of its
/// behaviour.
pub fn body(module: &Module, flow: &Flow, bias: u64, procedures: &Arc<Procedures>) -> Option<Body> {
    let function = module.function(flow.function());
    // Go's runtime turns a fault into a panic, and looks up the function in which it happened.
    let known = flow.edges().iter().all(|edge| edge.to != Target::Unknown);
    // An edge into the middle of another function's code cannot be real: some bytes were misread.
    let within = |address| function.ranges.iter().any(|range| range.contains(&address));
    let own = flow.instructions().iter().all(|one| within(one.address));
    if !known || !own || function.convention == Convention::Go {
        return None;
    }
    let parts: Option<Vec<Part>> =
        function.ranges.iter().map(|range| part(module, flow, range, bias)).collect();
    let moved = |address: u64| address.wrapping_add(bias);
    Some(Body {
        entry: moved(function.entry),
        parts: parts?,
        instructions: flow.instructions().iter().map(|one| moved(one.address)).collect(),
        entered: entered(module, flow, function).into_iter().map(moved).collect(),
        procedures: Arc::clone(procedures),
    })
}

fn part(module: &Module, flow: &Flow, range: &Range<u64>, bias: u64) -> Option<Part> {
    let filling = unused_behind(module, flow, range.end);
    let length = usize::try_from(range.end - range.start).ok()? + filling;
    let code = module.bytes(range.start, length)?.to_vec();
    let moved = |range: Range<u64>| range.start.wrapping_add(bias)..range.end.wrapping_add(bias);
    let behind = range.end..range.end + filling as u64;
    Some(Part {
        address: range.start.wrapping_add(bias),
        code,
        unused: gaps(module, flow, range).chain([behind]).map(moved).collect(),
    })
}

/// Counts the bytes of padding after a part, up to the first byte at which control enters it on
/// its way to the next function.
fn unused_behind(module: &Module, flow: &Flow, end: u64) -> usize {
    let behind = end..end + padding(module, end) as u64;
    let own = flow.edges().iter().filter_map(|edge| match edge.to {
        Target::Outside(address) => Some(address).filter(|address| behind.contains(address)),
        _ => None,
    });
    let first = own.chain(module.entered_inside(behind.clone())).min();
    (first.unwrap_or(behind.end) - end) as usize
}

/// Returns the ranges of padding between instructions that control cannot reach.
fn gaps(module: &Module, flow: &Flow, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut gaps = Vec::new();
    let mut end = range.start;
    let inside = flow.instructions().iter().filter(|one| range.contains(&one.address));
    for (begin, next) in inside.map(|one| (one.address, one.end())).chain([(range.end, 0)]) {
        if begin > end && is_filling(module, end..begin) {
            gaps.push(end..begin);
        }
        end = end.max(next);
    }
    gaps.into_iter()
}

fn is_filling(module: &Module, range: Range<u64>) -> bool {
    let length = usize::try_from(range.end - range.start).unwrap_or(0);
    let bytes = module.bytes(range.start, length);
    bytes.is_some_and(|bytes| {
        Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE)
            .iter()
            .all(|filler| !filler.is_invalid() && fills(&filler))
    })
}

/// Returns addresses of the file at which control may arrive other than by falling through or by a
/// direct jump of the function.
fn entered(module: &Module, flow: &Flow, function: &Function) -> BTreeSet<u64> {
    let mut found = entered_from_elsewhere(module, flow, function);
    for edge in flow.edges() {
        let Target::Block(block) = edge.to else { continue };
        let Some(block) = flow.blocks().get(block as usize) else { continue };
        match edge.kind {
            EdgeKind::Fall | EdgeKind::Jump | EdgeKind::Branch => {}
            EdgeKind::Table | EdgeKind::Return | EdgeKind::Unwind | EdgeKind::Call => {
                found.insert(block.start);
            }
        }
    }
    found
}

/// Returns addresses of the file at which control may arrive in the function other than by an edge
/// of its flow.
pub(crate) fn entered_from_elsewhere(
    module: &Module,
    flow: &Flow,
    function: &Function,
) -> BTreeSet<u64> {
    let mut found = BTreeSet::from([function.entry]);
    let mut reached = vec![false; flow.blocks().len()];
    for edge in flow.edges() {
        let Target::Block(block) = edge.to else { continue };
        if let Some(reached) = reached.get_mut(block as usize) {
            *reached = true;
        }
    }
    // Control may arrive in unknown ways at blocks that no edge leads to.
    let unreached = flow.blocks().iter().zip(reached).filter(|(_, reached)| !reached);
    found.extend(unreached.map(|(block, _)| block.start));
    found.extend(entered_inside(module, function));
    for instruction in flow.instructions() {
        let stored = instruction.address..instruction.end();
        if module.image().points_within(stored, u64::MAX) {
            found.insert(instruction.address);
        }
        found.extend(referenced_instruction(module, flow, instruction.address));
    }
    found
}

/// Whether control passes from block to block of the function as its flow says, and to no code of
/// another function.
pub(crate) fn is_understood(module: &Module, flow: &Flow) -> bool {
    let function = module.function(flow.function());
    let own = |address| function.ranges.iter().any(|range| range.contains(&address));
    let overlap = |marks: Marks| marks.contains(Marks::OVERLAPPED);
    flow.edges().iter().all(|edge| edge.to != Target::Unknown)
        && flow.instructions().iter().all(|one| own(one.address) && !overlap(one.marks))
        // A goroutine that recovers from a panic goes on where no edge leads to.
        && function.convention != Convention::Go
        // From any instruction of a restartable sequence, the kernel leads control elsewhere.
        && Sequences::of(module, flow).first().is_none()
}

/// Whether control that enters a block gets to its end at once: no call or system call is within,
/// which may last or not return, and nothing that faults.
pub(crate) fn runs_through(flow: &Flow, block: &Block) -> bool {
    let stays = [Marks::CALL, Marks::SYSCALL, Marks::TRAP];
    let mut own = flow.block_instructions(block);
    !own.any(|one| stays.iter().any(|mark| one.marks.contains(*mark)))
}

/// Returns the instruction of the function that the instruction at `address` refers to: by
/// computing its address, or by reading it as data.
fn referenced_instruction(module: &Module, flow: &Flow, address: u64) -> Option<u64> {
    let instruction = decode(module, address)?;
    let there =
        instruction.is_ip_rel_memory_operand().then(|| instruction.memory_displacement64())?;
    flow.instruction_at(there).map(|one| one.address)
}
