//! Whether a comparison may guard memory: a check of bounds.
//!
//! The number that is compared is followed from the jump on, with whatever is computed from it. If
//! it addresses memory, or is passed to a function, on one side of the jump only, the comparison
//! may be what keeps that side within bounds. If it does so on both sides, or on none, it is not.

use std::collections::BTreeMap;

use iced_x86::{Mnemonic, OpKind};

use crate::code::{Code, addressing, is_call, set};
use crate::loops::Loop;

/// Maximum number of instructions that are followed from each side.
const FOLLOWED: usize = 20_000;

/// Whether one side of a jump, and not the other one, uses one of these registers to address
/// memory, or passes it on.
pub fn guards(code: &Code<'_>, jump: usize, registers: u16) -> bool {
    let mut sides = code.next[jump].iter().map(|&side| uses_memory(code, side, registers));
    let first = sides.next();
    first.is_some_and(|first| sides.any(|other| other != first))
}

/// Whether a loop addresses memory by a register that changes in it, so that its rounds decide how
/// much memory it goes through.
pub fn walks(code: &Code<'_>, one: &Loop) -> bool {
    let own = || one.blocks.iter().flat_map(|&block| code.of_block(block));
    let changed = own().fold(0, |set, at| set | code.steps[at].writes | code.steps[at].changes);
    own().any(|at| {
        let instruction = &code.steps[at].instruction;
        let computes = matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
        instruction.is_string_instruction() || (!computes && addressing(instruction) & changed != 0)
    })
}

fn uses_memory(code: &Code<'_>, from: usize, registers: u16) -> bool {
    let mut seen: BTreeMap<usize, u16> = BTreeMap::new();
    let (mut left, mut followed) = (vec![(from, registers)], 0);
    while let Some((at, registers)) = left.pop() {
        let known = seen.entry(at).or_default();
        let all = *known | registers;
        if all == *known {
            continue;
        }
        *known = all;
        followed += 1;
        if followed > FOLLOWED {
            return true;
        }
        let step = &code.steps[at];
        let instruction = &step.instruction;
        let computes = instruction.mnemonic() == Mnemonic::Lea;
        let addresses = !computes && addressing(instruction) & all != 0;
        let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let passes = is_call(instruction) || step.leaves.is_some() || repeats;
        if addresses || (passes && step.reads & all != 0) {
            return true;
        }
        let loads = (0..instruction.op_count())
            .any(|one| instruction.op_kind(one) == OpKind::Memory)
            && !computes;
        let computed = if step.reads & all != 0 && !loads && !is_call(instruction) {
            // Memory was loaded from an address without them.
            step.writes | step.changes
        } else {
            0
        };
        let goes_on = (all & !step.writes) | (all & set_kept(code, at)) | computed;
        if goes_on != 0 {
            left.extend(code.next[at].iter().map(|&to| (to, goes_on)));
        }
    }
    false
}

/// Returns the register that an instruction both reads and writes, with a memory operand: what is
/// added to it changes it, but does not replace it.
fn set_kept(code: &Code<'_>, at: usize) -> u16 {
    let step = &code.steps[at];
    if is_call(&step.instruction) {
        return 0;
    }
    let target = step.instruction.op0_kind() == OpKind::Register;
    if target { set(step.instruction.op0_register()) & step.reads & step.writes } else { 0 }
}
