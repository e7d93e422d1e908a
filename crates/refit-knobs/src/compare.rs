//! Comparisons: what they decide, and the loops that end by them.

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, RflagsBits};
use refit_analysis::flow::is_immediate;

use crate::code::{Code, number, set};
use crate::loops::{Loop, Loops};

/// A conditional jump that flags decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index of the jump.
    pub jump: usize,
    /// When it is taken.
    pub condition: ConditionCode,
}

impl Decision {
    /// Whether it asks for equality, and not for an order.
    pub fn is_equality(&self) -> bool {
        matches!(self.condition, ConditionCode::e | ConditionCode::ne)
    }
}

/// Returns the conditional jump that the flags of an instruction decide, if that follows in the
/// same block.
pub fn decision(code: &Code<'_>, at: usize) -> Option<Decision> {
    let mut here = at;
    loop {
        let [next] = code.next[here][..] else { return None };
        if code.block[next] != code.block[at] {
            return None;
        }
        let instruction = &code.steps[next].instruction;
        if instruction.flow_control() == FlowControl::ConditionalBranch {
            let condition = instruction.condition_code();
            let known = condition != ConditionCode::None;
            return known.then_some(Decision { jump: next, condition });
        }
        if instruction.rflags_modified() != RflagsBits::NONE {
            return None;
        }
        here = next;
    }
}

/// Returns the innermost loop that a jump may leave.
pub fn left<'l>(code: &Code<'_>, loops: &'l Loops, jump: usize) -> Option<&'l Loop> {
    let inside = |one: &Loop, at: &usize| one.blocks.contains(&code.block[*at]);
    let mut around = loops.around(code.block[jump]);
    around.find(|one| {
        let next = &code.next[jump];
        next.iter().any(|at| inside(one, at)) && next.iter().any(|at| !inside(one, at))
    })
}

/// The change of a register in each round of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepping {
    /// A sum with this number.
    By(i64),
    /// A multiplication.
    Times,
}

/// Returns how a register changes in a loop, if nothing else changes it there.
pub fn stepping(code: &Code<'_>, one: &Loop, register: u8) -> Option<Stepping> {
    let mut found = None;
    for at in one.blocks.iter().flat_map(|&block| code.of_block(block)) {
        let step = &code.steps[at];
        if (step.writes | step.changes) >> register & 1 == 0 {
            continue;
        }
        let by = stepped(&step.instruction, register)?;
        if found.is_some_and(|other| other != by) {
            return None;
        }
        found = Some(by);
    }
    found
}

/// Returns by what an instruction changes a register, if that is all it does.
pub fn stepped(instruction: &Instruction, register: u8) -> Option<Stepping> {
    let own = |operand| number(instruction.op_register(operand)) == Some(register);
    if instruction.op0_kind() != OpKind::Register || !own(0) {
        return None;
    }
    let by = || is_immediate(instruction, 1).then(|| instruction.immediate(1).cast_signed());
    match instruction.mnemonic() {
        Mnemonic::Inc => Some(Stepping::By(1)),
        Mnemonic::Dec => Some(Stepping::By(-1)),
        Mnemonic::Add if instruction.op1_kind() == OpKind::Register && own(1) => {
            Some(Stepping::Times)
        }
        Mnemonic::Add => by().map(Stepping::By),
        Mnemonic::Sub => by().map(|by| Stepping::By(by.wrapping_neg())),
        Mnemonic::Shl => by().map(|_| Stepping::Times),
        Mnemonic::Lea => {
            let base = set(instruction.memory_base()) == 1 << register;
            let index = instruction.memory_index();
            let by = instruction.memory_displacement64().cast_signed();
            match (base, set(index) == 1 << register) {
                (true, false) if set(index) == 0 => Some(Stepping::By(by)),
                (true, true) if by == 0 => Some(Stepping::Times),
                _ => None,
            }
        }
        _ => None,
    }
}
