//! Values of which some bits are known.

/// A value of 64 bits, or of the low ones of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// The bits that are known.
    known: u64,
    /// Their values; 0 where they are unknown.
    value: u64,
}

impl Bits {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { known: 0, value: 0 };

    /// Returns a value of which all bits are known.
    pub const fn known(value: u64) -> Self {
        Self { known: u64::MAX, value }
    }

    /// Returns a value of which the bits of `known` are.
    pub const fn partly(known: u64, value: u64) -> Self {
        Self { known, value: value & known }
    }

    /// Returns the value of the low `width` bits if all of them are known.
    pub const fn low(self, width: u32) -> Option<u64> {
        let mask = mask(width);
        if self.known & mask == mask { Some(self.value & mask) } else { None }
    }

    /// Returns the whole value if it is known.
    pub const fn whole(self) -> Option<u64> {
        self.low(64)
    }

    /// Returns the value of one bit if it is known.
    pub const fn bit(self, number: u32) -> Option<bool> {
        match self.known >> number & 1 {
            0 => None,
            _ => Some(self.value >> number & 1 == 1),
        }
    }

    /// Returns the bits that are known to be set, and those that are known to be clear.
    pub const fn split(self) -> (u64, u64) {
        (self.value, self.known & !self.value)
    }

    /// Returns it with all bits from `width` on clear.
    pub const fn zero_extended(self, width: u32) -> Self {
        Self { known: self.known | !mask(width), value: self.value & mask(width) }
    }

    /// Returns it with all bits from `width` on as bit `width - 1` is.
    pub const fn sign_extended(self, width: u32) -> Self {
        let (low, upper) = (Self::partly(self.known & mask(width), self.value), !mask(width));
        match self.bit(width - 1) {
            None => low,
            Some(false) => Self { known: low.known | upper, value: low.value },
            Some(true) => Self { known: low.known | upper, value: low.value | upper },
        }
    }

    /// Returns it with `width` bits from bit `from` on replaced by those of another value.
    pub const fn merged(self, part: Self, from: u32, width: u32) -> Self {
        let within = mask(width) << from;
        Self {
            known: self.known & !within | part.known << from & within,
            value: self.value & !within | part.value << from & within,
        }
    }

    /// Returns the bits from bit `from` on.
    pub const fn shifted_down(self, from: u32) -> Self {
        Self { known: self.known >> from, value: self.value >> from }
    }

    /// Returns what is known of a value that is either of two.
    pub const fn or_else(self, other: Self) -> Self {
        Self::partly(self.known & other.known & !(self.value ^ other.value), self.value)
    }

    /// Whether both are known to differ in one of the low `width` bits.
    pub const fn differ(self, other: Self, width: u32) -> bool {
        self.known & other.known & (self.value ^ other.value) & mask(width) != 0
    }
}

/// Returns the low `width` bits, set.
pub const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_values_are_known() {
        let low = Bits::partly(0xff, 0x80);
        assert_eq!((low.low(8), low.low(9), low.whole()), (Some(0x80), None, None));
        assert_eq!(low.sign_extended(8).whole(), Some(0xffff_ffff_ffff_ff80));
        assert_eq!(low.zero_extended(8).whole(), Some(0x80));
        assert_eq!(Bits::partly(0x7f, 0).sign_extended(8), Bits::partly(0x7f, 0));
        assert_eq!(Bits::known(0).merged(Bits::known(0x12), 8, 8).whole(), Some(0x1200));
        assert_eq!(Bits::known(5).or_else(Bits::known(4)), Bits::partly(!1, 4));
        assert!(Bits::known(5).differ(low, 8) && !Bits::UNKNOWN.differ(low, 64));
    }
}
