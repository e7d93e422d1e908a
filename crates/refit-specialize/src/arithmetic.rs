//! Arithmetic on values of which some bits are known, with the flags that the processor sets
//! (Intel SDM, volume 2).

use refit_analysis::live::flag;

use crate::bits::{Bits, mask};
use crate::state::ARITHMETIC;

/// A result, and the flags that change with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result, in the low bits.
    pub value: Bits,
    /// The flags that change.
    pub changed: u8,
    /// Their values, as far as they are known.
    pub flags: Bits,
}

/// Flags that are being collected.
#[derive(Default)]
struct Flags(u64, u64);

impl Flags {
    fn set(mut self, one: u8, to: Option<bool>) -> Self {
        if let Some(to) = to {
            self.0 |= u64::from(one);
            self.1 |= if to { u64::from(one) } else { 0 };
        }
        self
    }

    /// Adds zero, sign and parity of a result.
    fn of(self, value: Bits, width: u32) -> Self {
        let (ones, zeros) = value.split();
        let zero = match (ones & mask(width), zeros & mask(width)) {
            (0, zeros) if zeros == mask(width) => Some(true),
            (0, _) => None,
            _ => Some(false),
        };
        let parity = value.low(8).map(|low| low.count_ones() % 2 == 0);
        self.set(flag::ZERO, zero).set(flag::SIGN, value.bit(width - 1)).set(flag::PARITY, parity)
    }

    fn bits(self) -> Bits {
        Bits::partly(self.0, self.1)
    }
}

/// Returns `one + other + carry`.
pub fn add(one: Bits, other: Bits, carry: Option<bool>, width: u32) -> Outcome {
    let (Some(a), Some(b), Some(carry)) = (one.low(width), other.low(width), carry) else {
        return Outcome { value: Bits::UNKNOWN, changed: ARITHMETIC, flags: Bits::UNKNOWN };
    };
    let wide = u128::from(a) + u128::from(b) + u128::from(carry);
    let result = wide as u64 & mask(width);
    let overflow = (a ^ result) & (b ^ result) & 1 << (width - 1) != 0;
    let flags = Flags::default()
        .of(Bits::known(result), width)
        .set(flag::CARRY, Some(wide >> width != 0))
        .set(flag::OVERFLOW, Some(overflow))
        .set(flag::AUXILIARY, Some((a ^ b ^ result) & 0x10 != 0));
    Outcome { value: Bits::known(result), changed: ARITHMETIC, flags: flags.bits() }
}

/// Returns `one - other - borrow`.
pub fn subtract(one: Bits, other: Bits, borrow: Option<bool>, width: u32) -> Outcome {
    let (Some(a), Some(b), Some(borrow)) = (one.low(width), other.low(width), borrow) else {
        let flags = if borrow == Some(false) { compared(one, other, width) } else { Bits::UNKNOWN };
        return Outcome { value: Bits::UNKNOWN, changed: ARITHMETIC, flags };
    };
    let result = a.wrapping_sub(b).wrapping_sub(borrow.into()) & mask(width);
    let overflow = (a ^ b) & (a ^ result) & 1 << (width - 1) != 0;
    let flags = Flags::default()
        .of(Bits::known(result), width)
        .set(flag::CARRY, Some(u128::from(a) < u128::from(b) + u128::from(borrow)))
        .set(flag::OVERFLOW, Some(overflow))
        .set(flag::AUXILIARY, Some((a ^ b ^ result) & 0x10 != 0));
    Outcome { value: Bits::known(result), changed: ARITHMETIC, flags: flags.bits() }
}

/// Returns the flags that the ranges of two values tell of their difference.
fn compared(one: Bits, other: Bits, width: u32) -> Bits {
    let (a, b) = (one.unsigned_range(width), other.unsigned_range(width));
    let carry = match (a.1 < b.0, a.0 >= b.1) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let differ = one.differ(other, width) || carry == Some(true) || a.0 > b.1;
    let (a, b) = (one.signed_range(width), other.signed_range(width));
    let least = i128::from(a.0) - i128::from(b.1);
    let greatest = i128::from(a.1) - i128::from(b.0);
    let limit = 1 << (width - 1);
    let fits = -limit <= least && greatest < limit;
    let sign = match (least >= 0, greatest < 0) {
        (true, _) => Some(false),
        (_, true) => Some(true),
        _ => None,
    };
    Flags::default()
        .set(flag::CARRY, carry)
        .set(flag::ZERO, differ.then_some(false))
        .set(flag::OVERFLOW, fits.then_some(false))
        .set(flag::SIGN, sign.filter(|_| fits))
        .bits()
}

/// A bitwise operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    /// Both.
    And,
    /// Either.
    Or,
    /// One of them.
    Xor,
}

/// Returns the result of a bitwise operation.
pub fn logic(what: Logic, one: Bits, other: Bits, width: u32) -> Outcome {
    let ((a1, a0), (b1, b0)) = (one.split(), other.split());
    let (ones, zeros) = match what {
        Logic::And => (a1 & b1, a0 | b0),
        Logic::Or => (a1 | b1, a0 & b0),
        Logic::Xor => (a1 & b0 | a0 & b1, a0 & b0 | a1 & b1),
    };
    let value = Bits::partly(ones | zeros, ones).zero_extended(width);
    // The auxiliary carry is undefined.
    let flags = Flags::default()
        .of(value, width)
        .set(flag::CARRY, Some(false))
        .set(flag::OVERFLOW, Some(false));
    Outcome { value, changed: ARITHMETIC, flags: flags.bits() }
}

/// A shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// To the left.
    Left,
    /// To the right; zeros come in.
    Right,
    /// To the right; copies of the sign come in.
    Arithmetic,
}

/// Returns a value shifted by a count other than 0 and less than `width`.
pub fn shift(what: Shift, one: Bits, count: u32, width: u32) -> Outcome {
    let unknown = Outcome { value: Bits::UNKNOWN, changed: ARITHMETIC, flags: Bits::UNKNOWN };
    if count == 0 || count >= width {
        return unknown;
    }
    let one = one.zero_extended(width);
    let value = match what {
        Shift::Left => Bits::known(0).merged(one, count, 64 - count).zero_extended(width),
        Shift::Right => one.shifted_down(count).zero_extended(width - count),
        Shift::Arithmetic => {
            one.shifted_down(count).sign_extended(width - count).zero_extended(width)
        }
    };
    let last = match what {
        Shift::Left => one.bit(width - count),
        Shift::Right | Shift::Arithmetic => one.bit(count - 1),
    };
    let (sign, result) = (one.bit(width - 1), value.bit(width - 1));
    // It is defined for a count of 1 only.
    let overflow = match what {
        _ if count != 1 => None,
        Shift::Left => last.zip(result).map(|(carry, sign)| carry != sign),
        Shift::Right => sign,
        Shift::Arithmetic => Some(false),
    };
    let flags =
        Flags::default().of(value, width).set(flag::CARRY, last).set(flag::OVERFLOW, overflow);
    Outcome { value, changed: ARITHMETIC, flags: flags.bits() }
}

/// Returns the low half of a signed product.
pub fn multiply(one: Bits, other: Bits, width: u32) -> Outcome {
    let signed = |value: Bits| value.sign_extended(width).whole().map(u64::cast_signed);
    let (Some(a), Some(b)) = (signed(one), signed(other)) else {
        return Outcome { value: Bits::UNKNOWN, changed: ARITHMETIC, flags: Bits::UNKNOWN };
    };
    let product = i128::from(a) * i128::from(b);
    let result = product as u64 & mask(width);
    let fits = i128::from(Bits::known(result).sign_extended(width).split().0.cast_signed());
    let flags = Flags::default()
        .set(flag::CARRY, Some(fits != product))
        .set(flag::OVERFLOW, Some(fits != product));
    Outcome { value: Bits::known(result), changed: ARITHMETIC, flags: flags.bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(outcome: Outcome) -> (u64, u64) {
        let (ones, zeros) = outcome.flags.split();
        (ones, zeros)
    }

    #[test]
    fn carries_and_overflows_are_those_of_the_width() {
        let sum = add(Bits::known(0xff), Bits::known(1), Some(false), 8);
        assert_eq!(sum.value.low(8), Some(0));
        let set = flag::CARRY | flag::ZERO | flag::PARITY | flag::AUXILIARY;
        assert_eq!(flags(sum).0, u64::from(set));
        let sum = add(Bits::known(0x7fff_ffff), Bits::known(1), Some(false), 32);
        let set = flag::OVERFLOW | flag::SIGN | flag::PARITY | flag::AUXILIARY;
        assert_eq!(flags(sum).0, u64::from(set));
        let difference = subtract(Bits::known(0), Bits::known(u64::MAX), Some(true), 64);
        assert_eq!(difference.value.whole(), Some(0));
        assert!(flags(difference).0 & u64::from(flag::CARRY) != 0);
    }

    #[test]
    fn some_bits_tell_some_flags() {
        let odd = Bits::partly(1, 1);
        let (ones, zeros) = flags(subtract(odd, Bits::known(8), Some(false), 32));
        assert_eq!((ones, zeros & u64::from(flag::ZERO)), (0, flag::ZERO.into()));
        // A byte is less than 300, whether with a sign or without.
        for byte in [Bits::UNKNOWN.zero_extended(8), Bits::UNKNOWN.sign_extended(8)] {
            let (ones, zeros) = flags(subtract(byte, Bits::known(300), Some(false), 32));
            assert!(ones & u64::from(flag::SIGN) != 0);
            assert_eq!(zeros, u64::from(flag::ZERO | flag::OVERFLOW));
        }
        let masked = logic(Logic::And, Bits::UNKNOWN, Bits::known(6), 32);
        assert_eq!(masked.value, Bits::partly(!6, 0));
        let zero = logic(Logic::And, odd, Bits::known(0), 32);
        assert!(flags(zero).0 & u64::from(flag::ZERO) != 0);
        let shifted = shift(Shift::Right, Bits::partly(0x80, 0x80), 7, 8);
        assert_eq!(shifted.value.whole(), Some(1));
        assert_eq!(shift(Shift::Left, odd, 0, 32).value, Bits::UNKNOWN);
        let product = multiply(Bits::known(0x8000_0000), Bits::known(2), 32);
        assert_eq!(product.value.low(32), Some(0));
        assert!(flags(product).0 & u64::from(flag::OVERFLOW) != 0);
    }
}
