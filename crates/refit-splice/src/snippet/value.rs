//! Values of the program that steps look at, and conditions over them.

use iced_x86::Code;

use super::registers::Set;

/// A value that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it is.
    pub base: Base,
    /// How much of it counts.
    pub width: Width,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// In a general register, by its number.
    Register(u8),
    /// The number of the thread.
    Thread,
    /// The number of the process.
    Process,
    /// What tells the thread from all others of the process, whatever it is.
    Context,
    /// The goroutine, by its address in Go's runtime: what a thread of Go's runs changes within a function.
    Goroutine,
    /// In memory, so many bytes from where a register points. The kernel copies it, so that a pointer that leads nowhere does no
    /// harm: what depends on it is not done.
    Memory {
        /// The register's number.
        register: u8,
        /// Bytes to add.
        offset: i32,
    },
}

/// How wide a value is; negative numbers keep their sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// All 64.
    Whole,
    /// 8 bits, signed.
    I8,
    /// 16 bits, signed.
    I16,
    /// 32 bits, signed.
    I32,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// What is compared.
    pub value: Value,
    /// How.
    pub relation: Relation,
    /// With what.
    pub than: i64,
}

/// How two numbers compare, as signed ones of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

impl Value {
    /// All of a general register.
    pub fn register(number: u8) -> Self {
        Self { base: Base::Register(number), width: Width::Whole }
    }

    pub(super) fn reads(self) -> Set {
        match self.base {
            Base::Register(register) | Base::Memory { register, .. } => Set::of(&[register]),
            Base::Thread | Base::Process | Base::Context | Base::Goroutine => Set::NONE,
        }
    }
}

impl Width {
    /// Bytes that it takes.
    pub(super) fn bytes(self) -> i32 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::Whole => 8,
        }
    }
}

impl Test {
    /// Whether an instruction can hold what is compared with.
    pub(super) fn is_small(&self) -> bool {
        i32::try_from(self.than).is_ok()
    }
}

impl Relation {
    /// The jump that is taken where it does not hold.
    pub(super) fn otherwise(self) -> Code {
        match self {
            Self::Equal => Code::Jne_rel32_64,
            Self::Unequal => Code::Je_rel32_64,
            Self::Less => Code::Jge_rel32_64,
            Self::AtMost => Code::Jg_rel32_64,
            Self::More => Code::Jle_rel32_64,
            Self::AtLeast => Code::Jl_rel32_64,
        }
    }
}
