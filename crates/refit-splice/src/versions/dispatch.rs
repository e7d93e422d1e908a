//! The tests at the entry of a function that has versions.

use iced_x86::{Code, Instruction, Register};

use super::version::Version;
use crate::relocate::made;
use crate::why::Why;

/// The general registers by their numbers.
const REGISTERS: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Returns the instructions that set the zero flag if the register has the version's value.
///
/// # Errors
/// [`Why::Generate`].
pub(super) fn test(version: &Version, address: u64) -> Result<Vec<Instruction>, Why> {
    let register = REGISTERS[usize::from(version.register & 15)];
    let value = version.value;
    let make = |instruction| made(address, instruction);
    if value == 0 {
        return Ok(vec![make(Instruction::with2(Code::Test_rm64_r64, register, register))?]);
    }
    if let Ok(number) = i32::try_from(value.cast_signed()) {
        return Ok(vec![make(Instruction::with2(Code::Cmp_rm64_imm32, register, number))?]);
    }
    let constant = match u32::try_from(value) {
        Ok(short) => Instruction::with2(Code::Mov_r32_imm32, Register::R11D, short),
        Err(_) => Instruction::with2(Code::Mov_r64_imm64, Register::R11, value),
    };
    let compare = Instruction::with2(Code::Cmp_r64_rm64, register, Register::R11);
    Ok(vec![make(constant)?, make(compare)?])
}
