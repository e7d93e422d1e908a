//! Whether a function may use the 128 bytes below the stack pointer.
//!
//! Compilers use these bytes in leaf functions, below the stack pointer or through a copy of it (a
//! frame pointer). So a function may use the red zone if an instruction addresses it, if the
//! function is a leaf and copies the stack pointer, or if part of the function was not seen.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpKind, Register,
};

use super::outline::Outline;
use crate::flow::exits::{Exit, exit_of};
use crate::flow::walk::Walk;

/// Whether `walk` may use the red zone.
pub(super) fn may_be_used(
    info: &mut InstructionInfoFactory,
    walk: &Walk,
    outline: &Outline,
) -> bool {
    if outline.unknown || outline.convention_go {
        return true;
    }
    let calls = |i: &Instruction| matches!(exit_of(i), Exit::Call(_) | Exit::CallIndirect);
    let leaf = !walk.code.iter().any(calls);
    walk.code.iter().any(|i| below_stack(info, i) || (leaf && copies_stack_pointer(i)))
}

/// Whether the instruction addresses memory below the stack pointer, or at an index from it.
fn below_stack(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let names = (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
    if !names || instruction.memory_base() != Register::RSP {
        return false;
    }
    let below = (instruction.memory_displacement64() as i64) < 0;
    let indexed = instruction.memory_index() != Register::None;
    if !below && !indexed {
        return false;
    }
    // `lea -8(%rsp), %rsp` moves the pointer without touching memory.
    if instruction.mnemonic() == Mnemonic::Lea {
        return instruction.op0_register() != Register::RSP;
    }
    let info = info.info_options(instruction, InstructionInfoOptions::NO_REGISTER_USAGE);
    below && info.used_memory().iter().any(|m| m.base() == Register::RSP) || indexed
}

/// Whether the instruction computes another register from the stack pointer.
fn copies_stack_pointer(instruction: &Instruction) -> bool {
    if instruction.op_count() < 2 || instruction.op0_kind() != OpKind::Register {
        return false;
    }
    let elsewhere = instruction.op0_register().full_register() != Register::RSP;
    let from = match instruction.mnemonic() {
        Mnemonic::Lea => instruction.memory_base() == Register::RSP,
        _ => {
            instruction.op1_kind() == OpKind::Register
                && instruction.op1_register().full_register() == Register::RSP
        }
    };
    elsewhere && from
}
