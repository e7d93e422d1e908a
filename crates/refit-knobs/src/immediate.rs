//! Where the immediate of an instruction is, and the numbers that fit there.

use iced_x86::{ConstantOffsets, Instruction, OpKind};
use refit_analysis::flow::is_immediate;

/// The immediate of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Immediate {
    /// Address of the instruction in the file.
    pub instruction: u64,
    /// Address of its first byte.
    pub address: u64,
    /// Number of its bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Bits of the operand that it is compared with, or that it becomes; it is extended by its sign
    /// if it has fewer.
    pub bits: u8,
}

impl Immediate {
    /// Returns the immediate of an instruction, and its number; `None` if it has none, or several.
    pub fn of(instruction: &Instruction, offsets: &ConstantOffsets) -> Option<(Self, i64)> {
        if !offsets.has_immediate() || offsets.has_immediate2() {
            return None;
        }
        let operand = (0..instruction.op_count()).find(|&one| is_immediate(instruction, one))?;
        let bytes = offsets.immediate_size() as u8;
        let size = match instruction.op0_kind() {
            OpKind::Register => instruction.op0_register().size(),
            OpKind::Memory => instruction.memory_size().size(),
            _ => usize::from(bytes),
        };
        if !matches!(size, 1 | 2 | 4 | 8) || !matches!(bytes, 1 | 2 | 4 | 8) {
            return None;
        }
        let immediate = Self {
            instruction: instruction.ip(),
            address: instruction.ip() + offsets.immediate_offset() as u64,
            bytes,
            bits: (size * 8) as u8,
        };
        let number = extend(instruction.immediate(operand), immediate.bits);
        (usize::from(bytes) <= size).then_some((immediate, number))
    }

    /// Returns the least and the greatest number that fits. A number that has all bits of its
    /// operand may be given with or without a sign.
    pub fn range(&self) -> (i64, i64) {
        let bits = u32::from(self.bytes) * 8;
        let least = i64::MIN >> (64 - bits);
        let greatest = match bits {
            64 => i64::MAX,
            _ if bits == u32::from(self.bits) => (1 << bits) - 1,
            _ => -(least + 1),
        };
        (least, greatest)
    }

    /// Returns the bytes of a number; `None` if it does not fit.
    pub fn encode(&self, number: i64) -> Option<Vec<u8>> {
        let (least, greatest) = self.range();
        let fits = (least..=greatest).contains(&number);
        fits.then(|| number.to_le_bytes()[..usize::from(self.bytes)].to_vec())
    }

    /// Returns the number that these bytes of an immediate are.
    pub fn decode(&self, bytes: &[u8]) -> Option<i64> {
        if bytes.len() != usize::from(self.bytes) {
            return None;
        }
        let mut all = [0; 8];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(extend(u64::from_le_bytes(all), self.bytes * 8))
    }
}

/// Extends a number of this many bits by its sign.
fn extend(number: u64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits.clamp(1, 64));
    (number << unused).cast_signed() >> unused
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn of(bytes: &[u8]) -> Option<(Immediate, i64)> {
        let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let offsets = decoder.get_constant_offsets(&instruction);
        Immediate::of(&instruction, &offsets)
    }

    #[test]
    fn numbers_fit_where_the_encoding_has_room() {
        // cmp eax, 64; cmp eax, 0x1000; mov ecx, 100; mov rax, 0x123456789a; cmp ax, 0x1000
        for (bytes, number, at, range) in [
            (&[0x83, 0xf8, 0x40][..], 64, 2, (-128, 127)),
            (&[0x3d, 0, 0x10, 0, 0], 0x1000, 1, (i64::from(i32::MIN), i64::from(u32::MAX))),
            (&[0xb9, 100, 0, 0, 0], 100, 1, (i64::from(i32::MIN), i64::from(u32::MAX))),
            (
                &[0x48, 0xb8, 0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0, 0],
                0x12_3456_789a,
                2,
                (i64::MIN, i64::MAX),
            ),
            (&[0x66, 0x3d, 0, 0x10], 0x1000, 2, (-0x8000, 0xffff)),
            (&[0x48, 0x81, 0xfa, 0xff, 7, 0, 0], 2047, 3, (-(1 << 31), (1 << 31) - 1)),
            (&[0x83, 0xf8, 0xff], -1, 2, (-128, 127)),
        ] {
            let (immediate, found) = of(bytes).expect("an immediate");
            assert_eq!((found, immediate.address), (number, 0x1000 + at));
            assert_eq!(immediate.range(), range);
            let encoded = immediate.encode(number).expect("it fits");
            assert_eq!(encoded, bytes[at as usize..]);
            assert_eq!(immediate.decode(&encoded), Some(number));
            assert_eq!(immediate.encode(range.1), immediate.encode(range.1));
            assert!(range.1 == i64::MAX || immediate.encode(range.1 + 1).is_none());
        }
        // No immediate: cmp eax, ecx.
        assert_eq!(of(&[0x39, 0xc8]), None);
    }
}
