//! Instructions encoded for a place, and what a site comes to.

use iced_x86::{BlockEncoder, BlockEncoderOptions, Instruction, InstructionBlock, Mnemonic};

use crate::record::Record;

/// What one site, or a copied function with its sites, comes to.
pub(crate) struct Made {
    /// Where its code is to stand.
    pub(crate) at: u64,
    pub(crate) code: Vec<u8>,
    /// Changes, and what is needed to undo them.
    pub(crate) records: Vec<Record>,
    /// Where program counters at instructions that change go.
    pub(crate) moves: Vec<(u64, u64)>,
    /// Whether the code makes system calls. Those of the program run at their places.
    pub(crate) calls: bool,
}

pub(crate) fn makes_calls(code: &[Instruction]) -> bool {
    code.iter().any(|one| one.mnemonic() == Mnemonic::Syscall)
}

/// Encodes instructions for a place. Also where each begins, from there on; `u32::MAX` if it became several.
///
/// A branch to the address of an instruction in the list leads to that one.
pub(crate) fn encode(
    instructions: &[Instruction],
    at: u64,
) -> Result<(Vec<u8>, Vec<u32>), iced_x86::IcedError> {
    let block = InstructionBlock::new(instructions, at);
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let made = BlockEncoder::encode(64, block, options)?;
    Ok((made.code_buffer, made.new_instruction_offsets))
}
