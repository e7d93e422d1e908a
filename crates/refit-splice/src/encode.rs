//! Encodes instructions for an address.

use std::sync::Arc;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Encoder, IcedError, Instruction, InstructionBlock,
    Mnemonic, OpKind,
};

use refit_sys::trace::RSEQ_DESCRIPTOR;

use crate::body::has_no_long_form;
use crate::listing::{FIRST_LABEL, Frame, Listing, Sequence};
use crate::procedures::Procedures;
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
    /// Sites in a copy that only set a flag, with the addresses of the stores ([`SETS_FLAG`]).
    pub(crate) flags: Vec<(u64, u64)>,
    /// Whether the added code makes system calls. Those of the program run in place.
    pub(crate) calls: bool,
    /// Addresses from which frames hold, ascending; each up to the next one.
    pub(crate) frames: Vec<(u64, Frame)>,
    /// Descriptors of its restartable sequences.
    pub(crate) descriptors: Vec<[u8; RSEQ_DESCRIPTOR]>,
    /// The function whose code it stands for, as unwinders know it.
    pub(crate) procedures: Arc<Procedures>,
}

/// First byte of the instruction that sets a flag, `mov byte [rip + distance], 1`; and the byte
/// that turns it into a jump over itself, since the second one is 5, and 5 others follow.
pub(crate) const SETS_FLAG: u8 = 0xc6;
pub(crate) const SKIPS: u8 = 0xeb;

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
) -> Result<(Vec<u8>, Vec<u32>), IcedError> {
    if let Some(encoded) = encode_straight(instructions, at) {
        return Ok(encoded);
    }
    let block = InstructionBlock::new(instructions, at);
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let made = BlockEncoder::encode(64, block, options)?;
    Ok((made.code_buffer, made.new_instruction_offsets))
}

/// Encodes instructions as [`encode`] does, in a fraction of the time; branches within snippets are
/// not shortened. `None` if any other branch leads to one of the instructions, or if one has to be
/// encoded as several.
fn encode_straight(instructions: &[Instruction], at: u64) -> Option<(Vec<u8>, Vec<u32>)> {
    // Only labels have an address, which no other branch leads to.
    let labels = (0..).zip(instructions).filter(|(_, one)| one.code() == Code::Zero_bytes);
    let labels: Vec<(usize, u64)> = labels.map(|(index, one)| (index, one.ip())).collect();
    let mut encoder = Encoder::try_with_capacity(64, instructions.len() * 8).ok()?;
    let (mut length, mut offsets) = (0, Vec::with_capacity(instructions.len()));
    // Ends of branches within snippets, and the positions of their targets.
    let mut branches = Vec::new();
    for one in instructions {
        let mut one = *one;
        let mut target = None;
        if one.op0_kind() == OpKind::NearBranch64 {
            target = labels.iter().find(|&&(_, label)| label == one.near_branch64());
            let shortens = target.is_some_and(|&(_, label)| label < FIRST_LABEL);
            if shortens || has_no_long_form(&one) {
                return None;
            }
            one.as_near_branch();
            if target.is_some() {
                one.set_near_branch64(at);
            }
        }
        offsets.push(length as u32);
        length += encoder.encode(&one, at + length as u64).ok()?;
        branches.extend(target.map(|&(index, _)| (length, index)));
    }
    let mut code = encoder.take_buffer();
    for (end, index) in branches {
        // They end with the distance.
        let distance = offsets[index].wrapping_sub(end as u32);
        code[end - 4..end].copy_from_slice(&distance.to_le_bytes());
    }
    Some((code, offsets))
}

/// Returns the address of an instruction that was encoded for the address `at`, by its position;
/// `offsets` are those of [`encode`]. `None` if it was encoded as several.
pub(crate) fn address_of(at: u64, offsets: &[u32], index: usize) -> Option<u64> {
    let offset = offsets.get(index).copied().filter(|&offset| offset != u32::MAX)?;
    Some(at + u64::from(offset))
}

/// Returns the descriptors of a listing's restartable sequences, which were encoded for the address
/// `at`; `offsets` are those of [`encode`]. `None` if a sequence has no offset.
pub(crate) fn descriptors(
    listing: &Listing,
    at: u64,
    offsets: &[u32],
) -> Option<Vec<[u8; RSEQ_DESCRIPTOR]>> {
    let place = |index: usize| address_of(at, offsets, index);
    let descriptor = |sequence: &Sequence| {
        let (start, end) = (place(sequence.range.start)?, place(sequence.range.end)?);
        // Version and flags are 0.
        let words = [0, start, end - start, place(sequence.abort)?];
        let mut bytes = [0; RSEQ_DESCRIPTOR];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Some(bytes)
    };
    listing.sequences.iter().map(descriptor).collect()
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

#[cfg(test)]
mod tests {
    use iced_x86::{MemoryOperand, Register};

    use super::*;

    /// Both encoders have to agree wherever the faster one has an answer.
    #[test]
    fn straight_code_is_encoded_as_blocks_are() {
        const AT: u64 = 0x7000_0010;
        let near = |code, to| Instruction::with_branch(code, to).expect("a branch");
        let mut label = Instruction::with(Code::Zero_bytes);
        label.set_ip(1 << 62);
        let word = MemoryOperand::with_base_displ(Register::RIP, 0x7000_4000);
        let add = Instruction::with2(Code::Add_rm64_r64, word, Register::RAX).expect("an addition");
        let straight = [
            add,
            near(Code::Jb_rel8_64, 0x6000_0000_u64),
            label,
            near(Code::Je_rel8_64, 0x5555_0000_u64),
            near(Code::Jmp_rel32_64, 0x7000_2000),
        ];
        let encoded = encode_straight(&straight, AT).expect("straight");
        let block = InstructionBlock::new(&straight, AT);
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let made = BlockEncoder::encode(64, block, options).expect("encoded");
        assert_eq!(encoded, (made.code_buffer, made.new_instruction_offsets));
        for other in [near(Code::Je_rel32_64, 1 << 62), near(Code::Loop_rel8_64_RCX, 0x7000_0000)] {
            assert_eq!(encode_straight(&[&straight[..], &[other]].concat(), AT), None);
        }
        let far = near(Code::Jmp_rel32_64, 0x7fff_0000_0000);
        assert_eq!(encode_straight(&[far], AT), None);
    }
}
