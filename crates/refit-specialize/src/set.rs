//! Sets of general registers and flags, as bits of one word.

use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

use refit_analysis::live::Live;

/// A set of general registers and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u32);

const FLAGS: u32 = 16;

impl Set {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// All registers and flags.
    pub const ALL: Self = Self((1 << (FLAGS + 8)) - 1);
    /// The registers that a function may change, and the flags (System V ABI, figure 3.4).
    pub const CHANGED_BY_CALLS: Self = Self::ALL.without(Self(0xf038));

    /// Returns a set of registers, by the bits of their numbers.
    pub const fn general(mask: u16) -> Self {
        Self(mask as u32)
    }

    /// Returns a set of flags, by the bits of [`refit_analysis::live::flag`].
    pub const fn flags(mask: u8) -> Self {
        Self((mask as u32) << FLAGS)
    }

    /// Returns the registers and flags of a live set.
    pub fn of(live: &Live) -> Self {
        Self::general(live.general) | Self::flags(live.flags)
    }

    /// Returns the difference.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has the register with this number.
    pub const fn has(self, register: usize) -> bool {
        self.0 >> (register & 15) & 1 != 0
    }

    /// Returns its flags, by the bits of [`refit_analysis::live::flag`].
    pub const fn flag_bits(self) -> u8 {
        (self.0 >> FLAGS) as u8
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
