//! Encodes instructions for an address.

use iced_x86::{BlockEncoder, BlockEncoderOptions, Instruction, InstructionBlock, Mnemonic};

use crate::listing::{Frame, Listing};
use crate::record::Record;

/// Code and changes for one site, or for a copied function with its sites.
pub(crate) struct EncodedCode {
    /// Address of its code.
    pub(crate) at: u64,
    pub(crate) code: Vec<u8>,
    /// Changes, with the bytes that are needed to undo them.
    pub(crate) records: Vec<Record>,
    /// Moves of program counters, from changed instructions to their copies.
    pub(crate) moves: Vec<(u64, u64)>,
    /// Whether the added code makes system calls. Those of the program run in place.
    pub(crate) calls: bool,
    /// Addresses from which frames hold, ascending; each up to the next one.
    pub(crate) frames: Vec<(u64, Frame)>,
}

pub(crate) fn makes_calls(code: &[Instruction]) -> bool {
    code.iter().any(|one| one.mnemonic() == Mnemonic::Syscall)
}

/// Encodes instructions for an address. Also returns the offset of each instruction; `u32::MAX` if
/// it was encoded as several.
///
/// A branch to the address of an instruction in the list leads to that instruction.
pub(crate) fn encode(
    instructions: &[Instruction],
    at: u64,
) -> Result<(Vec<u8>, Vec<u32>), iced_x86::IcedError> {
    let block = InstructionBlock::new(instructions, at);
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let made = BlockEncoder::encode(64, block, options)?;
    Ok((made.code_buffer, made.new_instruction_offsets))
}

/// Returns the frames of instructions that were encoded for the address `at`, each from its address
/// on; `offsets` are those of [`encode`].
pub(crate) fn frames(listing: &Listing, at: u64, offsets: &[u32]) -> Vec<(u64, Frame)> {
    let frames = listing.frames.iter().filter_map(|&(from, frame)| {
        // An instruction that was encoded as several has no offset. Then the frame holds from the
        // next one on; the one before it has the same frame (`loop` and its like change nothing).
        let offset = offsets.get(from..)?.iter().find(|&&offset| offset != u32::MAX)?;
        Some((at + u64::from(*offset), frame))
    });
    frames.collect()
}
