//! Jumps from the program's code to the patch area.

use crate::record::Record;
use crate::site::Springboard;
use crate::why::Why;

/// Bytes of a jump that reaches 2 GiB.
pub const JUMP: usize = 5;
/// Bytes of a jump that reaches 127 bytes.
pub(crate) const HOP: usize = 2;

/// The way from a place to the patch area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Jump,
    /// By a short jump to a long one at this springboard.
    Hop(Springboard),
}

impl Way {
    /// Returns the bytes that change at the place itself.
    pub(crate) fn length(self) -> usize {
        if self == Self::Jump { JUMP } else { HOP }
    }

    /// Returns the changes that send control from `address`, whose bytes are `old`, to `to`.
    /// `copies` is stored in the record of the place itself.
    pub(crate) fn records(
        self,
        address: u64,
        old: &[u8],
        to: u64,
        copies: Vec<(u64, u64)>,
    ) -> Result<Vec<Record>, Why> {
        let far = || Why::Far { address };
        let mut records = Vec::new();
        let new = match self {
            Self::Jump => long_jump(address, to).ok_or_else(far)?.to_vec(),
            Self::Hop(place) => {
                let new = long_jump(place.address, to).ok_or_else(far)?.to_vec();
                let offset = hop(address, place.address).ok_or_else(far)?;
                let (at, old) = (place.address, place.code.to_vec());
                records.push(Record { address: at, old, new, copies: Vec::new() });
                vec![0xeb, offset.cast_unsigned()]
            }
        };
        records.push(Record { address, old: old.to_vec(), new, copies });
        Ok(records)
    }
}

/// Returns the displacement of a short jump, if it reaches.
pub(crate) fn hop(from: u64, to: u64) -> Option<i8> {
    i8::try_from(to.wrapping_sub(from + HOP as u64).cast_signed()).ok()
}

fn long_jump(from: u64, to: u64) -> Option<[u8; JUMP]> {
    let distance = to.wrapping_sub(from + JUMP as u64).cast_signed();
    let bytes = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, bytes[0], bytes[1], bytes[2], bytes[3]])
}
