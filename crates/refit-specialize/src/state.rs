//! Knowledge of the general registers and the flags at some place.

use iced_x86::Register;
use refit_analysis::live::flag;

use crate::bits::Bits;
use crate::set::Set;

/// The values of the general registers and the flags, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    general: [Bits; 16],
    /// By the bits of [`flag`].
    flags: Bits,
}

/// The arithmetic flags.
pub const ARITHMETIC: u8 =
    flag::CARRY | flag::PARITY | flag::AUXILIARY | flag::ZERO | flag::SIGN | flag::OVERFLOW;

impl Default for State {
    fn default() -> Self {
        Self { general: [Bits::UNKNOWN; 16], flags: Bits::UNKNOWN }
    }
}

impl State {
    /// Returns the state in which one register has a value.
    pub fn with(register: u8, value: u64) -> Self {
        let mut state = Self::default();
        state.general[usize::from(register & 15)] = Bits::known(value);
        state
    }

    /// Returns the whole register with this number.
    pub fn whole(&self, number: usize) -> Bits {
        self.general[number & 15]
    }

    /// Returns the value of a general register of any width, in its low bits.
    pub fn read(&self, register: Register) -> Bits {
        let (number, from, width) = place(register);
        self.general[number].shifted_down(from).zero_extended(width)
    }

    /// Writes a general register as the processor does: a write of 32 bits clears the upper half,
    /// one of less leaves all other bits.
    pub fn write(&mut self, register: Register, value: Bits) {
        let (number, from, width) = place(register);
        let whole = &mut self.general[number];
        *whole = match width {
            32 => value.zero_extended(32),
            _ => whole.merged(value, from, width),
        };
    }

    /// Returns one flag, by its bit of [`flag`], if it is known.
    pub fn flag(&self, one: u8) -> Option<bool> {
        self.flags.bit(one.trailing_zeros())
    }

    /// Replaces these flags; those that are unknown in `flags` become unknown.
    pub fn set_flags(&mut self, changed: u8, flags: Bits) {
        for number in 0..8 {
            if changed >> number & 1 == 1 {
                self.flags = self.flags.merged(flags.shifted_down(number), number, 1);
            }
        }
    }

    /// Forgets all of these registers and flags.
    pub fn forget(&mut self, set: Set) {
        for (number, value) in self.general.iter_mut().enumerate() {
            if set.has(number) {
                *value = Bits::UNKNOWN;
            }
        }
        self.set_flags(set.flag_bits(), Bits::UNKNOWN);
    }

    /// Returns what is known where control comes from either of two places.
    pub fn or_else(&self, other: &Self) -> Self {
        let general = std::array::from_fn(|at| self.general[at].or_else(other.general[at]));
        Self { general, flags: self.flags.or_else(other.flags) }
    }
}

/// Returns the number of the register that a register is a part of, the lowest bit, and the number
/// of bits.
fn place(register: Register) -> (usize, u32, u32) {
    let from = match register {
        Register::AH | Register::CH | Register::DH | Register::BH => 8,
        _ => 0,
    };
    (register.full_register().number() & 15, from, register.size() as u32 * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_as_the_processor_does() {
        let mut state = State::with(0, 0x1122_3344_5566_7788);
        state.write(Register::AH, Bits::known(0xaa));
        assert_eq!(state.read(Register::RAX).whole(), Some(0x1122_3344_5566_aa88));
        assert_eq!(state.read(Register::AX).low(16), Some(0xaa88));
        state.write(Register::EAX, Bits::known(0xffff_ffff_0000_0001));
        assert_eq!(state.whole(0).whole(), Some(1));
        state.write(Register::R8L, Bits::known(7));
        assert_eq!((state.whole(8).low(8), state.whole(8).low(9)), (Some(7), None));
    }

    #[test]
    fn flags_are_known_one_by_one() {
        let mut state = State::default();
        state.set_flags(flag::ZERO | flag::CARRY, Bits::partly(flag::ZERO.into(), u64::MAX));
        assert_eq!((state.flag(flag::ZERO), state.flag(flag::CARRY)), (Some(true), None));
        let other = State::default();
        assert_eq!(state.or_else(&other), other);
        state.forget(Set::flags(flag::ZERO));
        assert_eq!(state, other);
    }
}
