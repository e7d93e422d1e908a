//! Registers: those that are live at a place in a program's code, and their numbers.

use serde::{Deserialize, Serialize};

/// Registers in which the System V ABI passes the first six arguments that are integers or
/// pointers, by their numbers in machine code (§3.2.3).
pub const ARGUMENTS: [u8; 6] = [7, 6, 2, 1, 8, 9];

/// Numbers of the general registers in debug information and in frame descriptions (System V ABI,
/// figure 3.36), by their numbers in machine code.
pub const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Returns the general register that has this number in debug information, by its number in machine
/// code.
pub fn from_dwarf(number: u16) -> Option<u8> {
    let register = DWARF.iter().position(|&one| one == number)?;
    Some(register as u8)
}

/// The live set at one place: code that is inserted there must preserve all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Live {
    /// General registers by their number in machine code: bit 0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5
    /// rbp, 6 rsi, 7 rdi, 8 to 15 r8 to r15.
    pub general: u16,
    /// Flags; [`flag`] has the bits.
    pub flags: u8,
    /// Low 16 bytes of vector registers 0 to 31.
    pub vectors: u32,
    /// Bytes above the low 16 of vector registers 0 to 31.
    pub upper: u32,
    /// Mask registers k0 to k7.
    pub masks: u8,
    /// The x87 stack, which contains the MMX registers.
    pub x87: bool,
    /// Whether the 128 bytes below the stack pointer may be in use.
    pub red_zone: bool,
}

/// Bits of [`Live::flags`].
pub mod flag {
    /// Carry flag (CF).
    pub const CARRY: u8 = 1;
    /// Parity flag (PF).
    pub const PARITY: u8 = 2;
    /// Auxiliary carry flag (AF).
    pub const AUXILIARY: u8 = 4;
    /// Zero flag (ZF).
    pub const ZERO: u8 = 8;
    /// Sign flag (SF).
    pub const SIGN: u8 = 16;
    /// Overflow flag (OF).
    pub const OVERFLOW: u8 = 32;
    /// Direction flag (DF).
    pub const DIRECTION: u8 = 64;
    /// Any other flag that `pushf` stores (trap, alignment check and so on).
    pub const OTHER: u8 = 128;
}

impl Live {
    /// Everything is live, or liveness is unknown.
    pub const ALL: Self = Self {
        general: u16::MAX,
        flags: u8::MAX,
        vectors: u32::MAX,
        upper: u32::MAX,
        masks: u8::MAX,
        x87: true,
        red_zone: true,
    };

    /// Whether the general register with this number is live.
    pub fn general(&self, number: u8) -> bool {
        self.general >> (number & 15) & 1 != 0
    }
}
