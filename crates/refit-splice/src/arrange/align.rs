//! Puts `nop`s before the copies of blocks that are to be aligned.
//!
//! How many are needed depends on the length of the code before, in which branches are short or
//! long, which depends on the `nop`s in turn. So the code is encoded again, a few times at most; a
//! block that is not aligned then is as right as one that is.

use iced_x86::{Code, Instruction};

use super::arrangement::Alignment;
use crate::why::Why;

/// Instructions before an aligned block: enough for all bytes up to [`Alignment::MOST`].
pub(super) const NOPS: usize = 7;
/// Maximum number of times that the code is encoded again. A branch that becomes long or short
/// moves all blocks behind it, so that most are wrong until the last round: nine in ten of Perl's
/// were after three rounds, and none after four.
pub(super) const ROUNDS: usize = 20;

/// `nop`s by their lengths in bytes (Intel SDM, `NOP`, table 4-12).
const BY_LENGTH: [&[u8]; 10] = [
    &[],
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

/// The first position of the [`NOPS`] instructions before a block, and where the block is to begin.
pub(super) type Padding = (usize, Alignment);

/// Returns an instruction without bytes.
pub(super) fn nothing() -> Instruction {
    Instruction::with(Code::Zero_bytes)
}

/// Changes the `nop`s so that blocks are aligned, by the offsets of the code as it is now, which
/// was encoded for the address `at`. Returns whether any has changed.
///
/// # Errors
/// [`Why::Generate`].
pub(super) fn pad(
    instructions: &mut [Instruction],
    paddings: &[Padding],
    (at, offsets): (u64, &[u32]),
) -> Result<bool, Why> {
    let (mut shift, mut changed) = (0_u64, false);
    for &(position, alignment) in paddings {
        let offset = |index: usize| offsets.get(index).copied().map_or(0, u64::from);
        let begin = offset(position).wrapping_add(shift);
        let now = offset(position + NOPS).wrapping_sub(offset(position));
        let wanted = alignment.missing(at.wrapping_add(begin));
        if wanted != now {
            fill(&mut instructions[position..position + NOPS], wanted as usize)?;
            changed = true;
        }
        shift = shift.wrapping_add(wanted).wrapping_sub(now);
    }
    Ok(changed)
}

/// Makes these instructions take a number of bytes, each as many as it can.
fn fill(nops: &mut [Instruction], bytes: usize) -> Result<(), Why> {
    let mut left = bytes;
    for nop in nops {
        let length = left.min(BY_LENGTH.len() - 1);
        left -= length;
        *nop = match length {
            0 => nothing(),
            _ => Instruction::with_declare_byte(BY_LENGTH[length])
                .map_err(|error| Why::Generate { address: 0, reason: error.to_string() })?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    use super::*;
    use crate::encode::encode;

    #[test]
    fn each_length_is_made_of_nops() {
        for length in 0..Alignment::MOST as usize {
            let mut nops = [nothing(); NOPS];
            fill(&mut nops, length).expect("nops");
            let (code, _) = encode(&nops, 0x1000).expect("code");
            assert_eq!(code.len(), length);
            let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
            assert!(decoder.into_iter().all(|one| one.mnemonic() == Mnemonic::Nop), "{length}");
        }
    }

    #[test]
    fn blocks_are_aligned_one_after_the_other() {
        const AT: u64 = 0x7003;
        let alignments = [(32, 0), (16, 9), (8, 0)];
        let alignments = alignments.map(|(multiple, rest)| Alignment::new(multiple, rest));
        let (mut instructions, mut paddings) = (Vec::new(), Vec::new());
        for alignment in alignments {
            instructions.extend([Instruction::with(Code::Cpuid); 3]);
            paddings.push((instructions.len(), alignment));
            instructions.extend([nothing(); NOPS]);
        }
        instructions.push(Instruction::with(Code::Retnq));
        let (_, offsets) = encode(&instructions, AT).expect("code");
        assert!(pad(&mut instructions, &paddings, (AT, &offsets)).expect("nops"));
        let (_, offsets) = encode(&instructions, AT).expect("code");
        for &(position, alignment) in &paddings {
            assert_eq!(alignment.missing(AT + u64::from(offsets[position + NOPS])), 0);
        }
        assert!(!pad(&mut instructions, &paddings, (AT, &offsets)).expect("nops"));
    }
}
