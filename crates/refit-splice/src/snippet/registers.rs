//! Which registers a snippet takes, and where the program's values of them are meanwhile.

use std::ops::{BitOr, BitOrAssign};

use super::{Setting, Step};
use refit_analysis::live::{Live, flag};

/// The flags that arithmetic changes; snippets touch no other.
const STATUS: u8 =
    flag::CARRY | flag::PARITY | flag::AUXILIARY | flag::ZERO | flag::SIGN | flag::OVERFLOW;

/// Registers that a snippet takes, in the order of preference; all but the stack pointer.
const CHOICE: [u8; 15] = [11, 10, 0, 1, 2, 6, 7, 8, 9, 3, 5, 13, 14, 15, 12];

/// General registers by the bits of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set(u16);

impl Set {
    pub(super) const NONE: Self = Self(0);
    /// What a system call changes, with what it takes its number from: `rax`, `rcx`, `r11`.
    pub(super) const SYSCALL: Self = Self(1 | 1 << 1 | 1 << 11);

    pub(super) fn of(registers: &[u8]) -> Self {
        Self(registers.iter().fold(0, |all, register| all | 1 << register))
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

/// What a step needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Registers, whichever they are.
    pub(super) scratch: usize,
    /// Registers that its instructions change, and no others would do.
    pub(super) fixed: Set,
    /// Registers whose values in the program it looks at.
    pub(super) reads: Set,
    /// Whether it puts something onto the stack.
    pub(super) stack: bool,
}

impl Needs {
    /// Also needs what `other` does.
    pub(super) fn take(&mut self, other: Self) {
        self.scratch = self.scratch.max(other.scratch);
        self.fixed |= other.fixed;
        self.reads |= other.reads;
        self.stack |= other.stack;
    }
}

/// Where the program's value of a register is while the snippet runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Where it always is.
    Same,
    /// In another register.
    Register(u8),
    /// On the stack: so many bytes below the program's stack pointer.
    Stack(i64),
}

/// Who is taken, and who lives where.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// Registers for any use.
    pub(super) scratch: Vec<u8>,
    /// By register.
    pub(super) homes: [Home; 16],
    /// Whether they have to be put back at the end, by register: somebody needs them.
    pub(super) kept: Set,
    /// Whether flags have to be saved.
    pub(super) flags: bool,
    /// Whether the bytes below the stack pointer belong to the program, and something goes onto the stack.
    pub(super) red_zone: bool,
}

/// Bytes below the stack pointer that belong to a leaf (System V ABI §3.2.2).
pub(super) const RED_ZONE: i64 = 128;

impl Taken {
    pub(super) fn new(steps: &[Step], live: Live, setting: Setting) -> Self {
        let nothing = Needs { scratch: 0, fixed: Set::NONE, reads: Set::NONE, stack: false };
        let needs = steps.iter().fold(nothing, |mut all, step| {
            all.take(step.needs(setting));
            all
        });
        let kept = Set(live.general);
        // Those that nobody needs first.
        let wanted = kept | needs.reads;
        let mut order: Vec<u8> =
            CHOICE.into_iter().filter(|&register| !needs.fixed.has(register)).collect();
        order.sort_by_key(|&register| wanted.has(register));
        let scratch: Vec<u8> = order.iter().copied().take(needs.scratch).collect();
        let changed = Set::of(&scratch) | needs.fixed;
        let mut free =
            order.into_iter().skip(scratch.len()).filter(|&register| !wanted.has(register));
        let flags = live.flags & STATUS != 0 && steps.iter().any(Step::changes_flags);
        let (mut homes, mut pushed) = ([Home::Same; 16], Vec::new());
        for register in CHOICE.into_iter().filter(|&one| changed.has(one) && wanted.has(one)) {
            match free.next() {
                Some(other) => homes[usize::from(register)] = Home::Register(other),
                None => pushed.push(register),
            }
        }
        let red_zone = live.red_zone && (needs.stack || flags || !pushed.is_empty());
        let mut depth = if red_zone { RED_ZONE } else { 0 };
        for register in pushed {
            depth += 8;
            homes[usize::from(register)] = Home::Stack(depth);
        }
        Self { scratch, homes, kept, flags, red_zone }
    }
}
