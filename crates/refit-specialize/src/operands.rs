//! The values of operands.

use iced_x86::{Instruction, OpKind, Register};
use refit_analysis::flow::is_immediate;

use crate::bits::Bits;
use crate::constants::Constants;
use crate::state::State;

/// Returns the number of bits of an operand that is a general register or a number in memory;
/// `None` if it is something else.
pub fn width(instruction: &Instruction, operand: u32) -> Option<u32> {
    match instruction.op_kind(operand) {
        OpKind::Register => {
            let register = instruction.op_register(operand);
            register.is_gpr().then(|| register.size() as u32 * 8)
        }
        OpKind::Memory => {
            let bytes = instruction.memory_size().size();
            matches!(bytes, 1 | 2 | 4 | 8).then_some(bytes as u32 * 8)
        }
        _ => None,
    }
}

/// Returns what is known of an operand that is read, in its low bits.
pub fn value(
    instruction: &Instruction,
    operand: u32,
    state: &State,
    constants: &dyn Constants,
) -> Bits {
    match instruction.op_kind(operand) {
        OpKind::Register if instruction.op_register(operand).is_gpr() => {
            state.read(instruction.op_register(operand))
        }
        _ if is_immediate(instruction, operand) => Bits::known(instruction.immediate(operand)),
        OpKind::Memory => loaded(instruction, state, constants).map_or(Bits::UNKNOWN, Bits::known),
        _ => Bits::UNKNOWN,
    }
}

/// Returns the number that an instruction reads from memory, if that is constant.
pub fn loaded(instruction: &Instruction, state: &State, constants: &dyn Constants) -> Option<u64> {
    let bytes = instruction.memory_size().size() as u64;
    let segment = matches!(instruction.memory_segment(), Register::FS | Register::GS);
    if segment || !matches!(bytes, 1 | 2 | 4 | 8) {
        return None;
    }
    constants.read(address(instruction, state)?, bytes)
}

/// Returns the effective address of the memory operand, without its segment, if it is known.
pub fn address(instruction: &Instruction, state: &State) -> Option<u64> {
    let displacement = instruction.memory_displacement64();
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    if base == Register::RIP {
        return Some(displacement);
    }
    let part = |register: Register| match register {
        Register::None => Some(0),
        _ if register.is_gpr64() => state.read(register).whole(),
        _ => None,
    };
    let scaled = part(index)?.wrapping_mul(u64::from(instruction.memory_index_scale()));
    Some(part(base)?.wrapping_add(scaled).wrapping_add(displacement))
}
