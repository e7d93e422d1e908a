//! Values of which some bits are known.

/// A value of 64 bits, or of the low ones of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// The bits that are known.
    known: u64,
    /// Their values; 0 where they are unknown.
    value: u64,
    /// Bits that are unknown but equal to each other: copies of the sign of a shorter value. Two or
    /// more adjacent ones, or none.
    alike: u64,
}

impl Bits {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self::partly(0, 0);

    /// Returns a value of which all bits are known.
    pub const fn known(value: u64) -> Self {
        Self::partly(u64::MAX, value)
    }

    /// Returns a value of which the bits of `known` are.
    pub const fn partly(known: u64, value: u64) -> Self {
        Self { known, value: value & known, alike: 0 }
    }

    /// Returns it with these adjacent unknown bits equal to each other.
    const fn with_alike(self, alike: u64) -> Self {
        Self { alike: if alike.count_ones() > 1 { alike } else { 0 }, ..self }
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
        let low = Self::partly(self.known | !mask(width), self.value & mask(width));
        low.with_alike(self.alike & mask(width))
    }

    /// Returns it with all bits from `width` on as bit `width - 1` is.
    pub const fn sign_extended(self, width: u32) -> Self {
        let (low, sign) = (self.zero_extended(width), 1 << (width - 1));
        match self.bit(width - 1) {
            Some(false) => low,
            Some(true) => Self { value: low.value | !mask(width), ..low },
            None => {
                let own = if self.alike & sign == 0 { sign } else { self.alike & mask(width) };
                Self { known: low.known & mask(width), ..low }.with_alike(own | !mask(width))
            }
        }
    }

    /// Returns it with `width` bits from bit `from` on replaced by those of another value.
    pub const fn merged(self, part: Self, from: u32, width: u32) -> Self {
        let within = mask(width) << from;
        let known = self.known & !within | part.known << from & within;
        let both = Self::partly(known, self.value & !within | part.value << from & within);
        let new = part.alike << from & within;
        let kept = if self.alike & within == 0 { self.alike } else { 0 };
        both.with_alike(if new.count_ones() > 1 { new } else { kept })
    }

    /// Returns the bits from bit `from` on.
    pub const fn shifted_down(self, from: u32) -> Self {
        Self::partly(self.known >> from, self.value >> from).with_alike(self.alike >> from)
    }

    /// Returns what is known of a value that is either of two.
    pub const fn or_else(self, other: Self) -> Self {
        let both = self.known & other.known & !(self.value ^ other.value);
        let (one, another) = (self.alike_within(other), other.alike_within(self));
        let longer = if one.count_ones() >= another.count_ones() { one } else { another };
        Self::partly(both, self.value).with_alike(longer)
    }

    /// Returns bits that are equal to each other in both values and that are unknown in the other
    /// one: the upper ones of those, as far down as they are.
    const fn alike_within(self, other: Self) -> u64 {
        let (alike, (ones, zeros)) = (other.alike, self.split());
        if alike & self.alike != 0 {
            return alike & self.alike;
        }
        let top = 63 - (alike | 1).leading_zeros();
        let same = if ones >> top & 1 == 1 { ones } else { zeros };
        // The lowest bit from which on all are the same.
        let other = !same & mask(top + 1);
        alike & !mask(64 - other.leading_zeros())
    }

    /// Whether both are known to differ in one of the low `width` bits.
    pub const fn differ(self, other: Self, width: u32) -> bool {
        let low = mask(width);
        self.known & other.known & (self.value ^ other.value) & low != 0
            || self.mixed_in(other.alike & low)
            || other.mixed_in(self.alike & low)
    }

    /// Whether some of these bits are set and some are clear.
    const fn mixed_in(self, within: u64) -> bool {
        let (ones, zeros) = self.split();
        ones & within != 0 && zeros & within != 0
    }

    /// Returns the least and the greatest value that the low `width` bits may have as a number
    /// without a sign.
    pub const fn unsigned_range(self, width: u32) -> (u64, u64) {
        (self.value & mask(width), (self.value | !self.known) & mask(width))
    }

    /// Returns the least and the greatest value that the low `width` bits may have as a number with
    /// a sign.
    pub const fn signed_range(self, width: u32) -> (i64, i64) {
        let sign = 1 << (width - 1);
        let moved = if self.alike & sign == 0 { sign } else { self.alike };
        let moved = moved & !self.known;
        // The sign and its copies are set in the least one and clear in the greatest one.
        let least = Self::known(self.value | moved).sign_extended(width);
        let greatest = Self::known((self.value | !self.known) & !moved).sign_extended(width);
        (least.value.cast_signed(), greatest.value.cast_signed())
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
        assert_eq!(Bits::partly(0x7f, 0).sign_extended(8).signed_range(64), (-128, 0));
        assert_eq!(Bits::known(0).merged(Bits::known(0x12), 8, 8).whole(), Some(0x1200));
        assert_eq!(Bits::known(5).or_else(Bits::known(4)), Bits::partly(!1, 4));
        assert!(Bits::known(5).differ(low, 8) && !Bits::UNKNOWN.differ(low, 64));
    }

    #[test]
    fn copies_of_an_unknown_sign_are_equal() {
        let byte = Bits::UNKNOWN.sign_extended(8).zero_extended(32);
        assert!(byte.differ(Bits::known(0x80), 32) && byte.differ(Bits::known(0xff), 32));
        assert!(!byte.differ(Bits::known(0x7f), 32) && !byte.differ(Bits::known(0xffff_ff80), 32));
        assert_eq!(byte.signed_range(32), (-128, 127));
        assert_eq!(byte.unsigned_range(32), (0, 0xffff_ffff));
        assert_eq!(Bits::partly(1, 1).signed_range(8), (-127, 127));
        let wide = byte.sign_extended(32);
        assert_eq!(wide, Bits::UNKNOWN.sign_extended(8));
        assert_eq!(wide.signed_range(64), (-128, 127));
        assert_eq!(byte.shifted_down(8).signed_range(24), (-1, 0));
        // What is common to a byte and to a constant.
        for (value, range) in [(5, (-128, 127)), (0x1ff, (-512, 511)), (0xffff_fffe, (-128, 127))] {
            assert_eq!(byte.or_else(Bits::known(value)).signed_range(32), range);
            assert_eq!(Bits::known(value).or_else(byte).signed_range(32), range);
        }
        assert!(!byte.merged(Bits::known(1), 16, 8).differ(Bits::known(0x10080), 32));
    }
}
