//! Sets of general registers and flags, as bits of one word.

use bitflags::bitflags;
use refit_analysis::live::Live;

const FLAGS: u32 = 16;

bitflags! {
    /// A set of general registers and flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Set: u32 {
        /// All registers and flags.
        const ALL = (1 << (FLAGS + 8)) - 1;
        /// The registers that a function may change, and the flags (System V ABI, figure 3.4).
        const CHANGED_BY_CALLS = Self::ALL.bits() & !0xf038;
    }
}

impl Set {
    /// The empty set.
    pub const NONE: Self = Self::empty();

    /// Returns a set of registers, by the bits of their numbers.
    pub const fn general(mask: u16) -> Self {
        Self::from_bits_retain(mask as u32)
    }

    /// Returns a set of flags, by the bits of [`refit_analysis::live::flag`].
    pub const fn flags(mask: u8) -> Self {
        Self::from_bits_retain((mask as u32) << FLAGS)
    }

    /// Returns the registers and flags of a live set.
    pub fn of(live: &Live) -> Self {
        Self::general(live.general) | Self::flags(live.flags)
    }

    /// Whether it has the register with this number.
    pub const fn has(self, register: usize) -> bool {
        self.bits() >> (register & 15) & 1 != 0
    }

    /// Returns its flags, by the bits of [`refit_analysis::live::flag`].
    pub const fn flag_bits(self) -> u8 {
        (self.bits() >> FLAGS) as u8
    }
}
