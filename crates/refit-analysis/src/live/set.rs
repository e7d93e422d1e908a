//! Sets of everything that can be live, as bits of one word: set operations are single
//! instructions.

use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

use serde::{Deserialize, Serialize};

use crate::registers::{Live, flag};

/// A set of general registers, flags, vectors, mask registers and the x87 stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Set(u128);

const FLAGS: u32 = 16;
const VECTORS: u32 = 24;
const UPPER: u32 = 56;
const MASKS: u32 = 88;
const X87: u32 = 96;

impl Set {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self((1 << (X87 + 1)) - 1);
    pub(crate) const X87: Self = Self(1 << X87);
    /// All vectors, in full width.
    pub(crate) const VECTORS: Self = Self(((1 << 64) - 1) << VECTORS);
    pub(crate) const MASKS: Self = Self(0xff << MASKS);
    pub(crate) const FLAGS: Self = Self(0xff << FLAGS);

    /// Returns general registers by the bits of their numbers.
    pub(crate) const fn general(mask: u16) -> Self {
        Self(mask as u128)
    }

    /// Returns flags by the bits of [`flag`].
    pub(crate) const fn flags(mask: u8) -> Self {
        Self((mask as u128) << FLAGS)
    }

    /// Returns low parts of vectors by the bits of their numbers.
    pub(crate) const fn lower(mask: u32) -> Self {
        Self((mask as u128) << VECTORS)
    }

    /// Returns upper parts of vectors by the bits of their numbers.
    pub(crate) const fn upper(mask: u32) -> Self {
        Self((mask as u128) << UPPER)
    }

    /// Returns mask registers by the bits of their numbers.
    pub(crate) const fn masks(mask: u8) -> Self {
        Self((mask as u128) << MASKS)
    }

    /// Returns the union.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the difference.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Converts the set to its public form.
    pub(crate) fn to_live(self, red_zone: bool) -> Live {
        Live {
            general: self.0 as u16,
            flags: (self.0 >> FLAGS) as u8,
            vectors: (self.0 >> VECTORS) as u32,
            upper: (self.0 >> UPPER) as u32,
            masks: (self.0 >> MASKS) as u8,
            x87: self.0 >> X87 & 1 != 0,
            red_zone,
        }
    }
}

impl BitOr for Set {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Set {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Set {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Set {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }
}

/// The sets of the System V ABI.
pub(crate) mod abi {
    use super::{Set, flag};

    /// rbx, rsp, rbp, r12 to r15 and the direction flag: a function preserves them.
    pub(crate) const KEPT: Set = Set::general(0xf038).with(Set::flags(flag::DIRECTION));

    /// May hold arguments: rdi, rsi, rdx, rcx, r8, r9; rax (number of vectors); r10 (static chain);
    /// vectors 0 to 7.
    pub(crate) const ARGUMENTS: Set =
        Set::general(0x07c7).with(Set::lower(0xff)).with(Set::upper(0xff));

    /// May hold results: rax, rdx, and in LLVM's reading rcx; vectors 0 to 3; the x87 stack.
    pub(crate) const RESULTS: Set =
        Set::general(0x0007).with(Set::lower(0xf)).with(Set::upper(0xf)).with(Set::X87);

    /// May be read by a call of an unknown function. An unwinder that is called reads what
    /// functions preserve.
    pub(crate) const READ: Set = ARGUMENTS.with(KEPT);

    /// May be preserved by a call of an unknown function.
    pub(crate) const PRESERVED: Set = KEPT;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_form_says_the_same() {
        assert_eq!(Set::ALL.to_live(true), Live::ALL);
        let live = (Set::general(1 << 15) | Set::flags(flag::CARRY) | Set::upper(2)).to_live(false);
        assert!(live.general(15) && !live.general(0));
        assert_eq!((live.flags, live.vectors, live.upper), (flag::CARRY, 0, 2));
        assert!(!live.x87 && !live.red_zone);
    }

    #[test]
    fn what_is_kept_is_never_an_argument_or_result() {
        assert_eq!(abi::KEPT & abi::ARGUMENTS, Set::NONE);
        assert_eq!(abi::KEPT & abi::RESULTS, Set::NONE);
    }
}
