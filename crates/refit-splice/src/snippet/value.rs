//! Values of the program that steps read, and conditions over them.

use iced_x86::Code;

use super::registers::Set;

/// A value that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it is.
    pub base: Base,
    /// The width of the value, and its signedness.
    pub width: Width,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// In a general register, by its number.
    Register(u8),
    /// The thread id.
    Thread,
    /// The process id.
    Process,
    /// Any number that distinguishes the thread from others of the process.
    Context,
    /// The goroutine, by its address in Go's runtime: one function call may run on several threads.
    Goroutine,
    /// The number of the processor.
    Processor,
    /// In memory, at an offset from the address in a register. The kernel copies it, so an invalid
    /// pointer does no harm: actions that depend on the value are skipped.
    Memory {
        /// Number of the register.
        register: u8,
        /// Offset in bytes.
        offset: i32,
    },
    /// The number of the thread's stack, of which this many frames are kept
    /// ([`Installed::stack`](crate::Installed::stack)); 0 if there was no room for it. The plan has
    /// to have a table ([`Plan::walk`](crate::Plan::walk)).
    Stack(u8),
    /// The result of a formula that another action at the site has computed
    /// ([`Action::Assign`](crate::Action::Assign)), by its number. Actions that depend on it are
    /// skipped if it has none.
    Local(u8),
    /// The time in nanoseconds since the system was started (`CLOCK_MONOTONIC`, from the time-stamp
    /// counter).
    Time,
}

/// Number of the stack pointer.
pub(super) const STACK_POINTER: u8 = 4;
/// Number of the frame pointer.
pub(super) const FRAME_POINTER: u8 = 5;

/// Width of a value, and whether negative numbers keep their sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// All 64 bits.
    Whole,
    /// 8 bits, signed.
    I8,
    /// 16 bits, signed.
    I16,
    /// 32 bits, signed.
    I32,
}

/// A comparison of a value with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// The value.
    pub value: Value,
    /// The relation.
    pub relation: Relation,
    /// The number.
    pub than: i64,
}

/// Relations of signed 64-bit numbers.
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
    /// Returns the value of a whole general register.
    pub fn register(number: u8) -> Self {
        Self { base: Base::Register(number), width: Width::Whole }
    }

    /// Returns an upper bound of the bytes of the code that finds it.
    pub(super) fn most_bytes(self) -> u64 {
        if matches!(self.base, Base::Stack(_)) { 1024 } else { 224 }
    }

    pub(super) fn reads(self) -> Set {
        match self.base {
            Base::Register(register) | Base::Memory { register, .. } => Set::of(&[register]),
            Base::Stack(_) => Set::of(&[STACK_POINTER, FRAME_POINTER]),
            Base::Thread
            | Base::Process
            | Base::Context
            | Base::Goroutine
            | Base::Processor
            | Base::Local(_)
            | Base::Time => Set::NONE,
        }
    }
}

impl Width {
    /// Returns its bytes.
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
    /// Whether the number fits an immediate operand.
    pub(super) fn is_small(&self) -> bool {
        i32::try_from(self.than).is_ok()
    }
}

impl Relation {
    /// Whether it holds between these numbers.
    pub fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::More => left > right,
            Self::AtLeast => left >= right,
        }
    }

    /// Returns the jump that is taken if the relation does not hold.
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
