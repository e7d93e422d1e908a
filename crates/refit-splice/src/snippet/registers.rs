//! Sets of general registers, and the registers that a step needs.

use std::ops::{BitOr, BitOrAssign};

/// General registers by the bits of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set(pub(super) u16);

impl Set {
    pub(super) const NONE: Self = Self(0);
    /// The registers that a system call changes, and the one with its number: `rax`, `rcx`, `r11`.
    pub(super) const SYSCALL: Self = Self(1 | 1 << 1 | 1 << 11);

    pub(super) fn of(registers: &[u8]) -> Self {
        Self(registers.iter().fold(0, |all, register| all | 1 << register))
    }

    pub(super) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn has(self, register: u8) -> bool {
        self.0 >> register & 1 == 1
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
        *self = *self | other;
    }
}

/// The registers and stack that a step needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Number of registers, whichever they are.
    pub(super) scratch: usize,
    /// Registers that its instructions change by their encoding.
    pub(super) fixed: Set,
    /// Registers whose values in the program it reads.
    pub(super) reads: Set,
    /// Whether it pushes something.
    pub(super) stack: bool,
}

impl Needs {
    /// Adds the needs of another step.
    pub(super) fn take(&mut self, other: Self) {
        self.scratch = self.scratch.max(other.scratch);
        self.fixed |= other.fixed;
        self.reads |= other.reads;
        self.stack |= other.stack;
    }
}

/// Bytes below the stack pointer that a leaf function may use (System V ABI §3.2.2).
pub(super) const RED_ZONE: i64 = 128;

/// Registers and stack of a system call that copies memory, which has six arguments.
pub(super) const FETCHING: Needs = Needs {
    scratch: 1,
    fixed: Set(Set::SYSCALL.0 | 1 << 2 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10),
    reads: Set::NONE,
    stack: true,
};
