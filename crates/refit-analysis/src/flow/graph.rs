//! The parts of a control-flow graph: instructions, basic blocks, edges.

use crate::functions::FunctionId;

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub length: u8,
    /// What whoever moves it has to know.
    pub marks: Marks,
}

impl Instruction {
    /// Where the next one begins.
    pub fn end(&self) -> u64 {
        self.address + u64::from(self.length)
    }
}

/// Bytes that an instruction has at most.
pub(crate) const LONGEST: u64 = 15;

/// What whoever moves an instruction has to know about it; a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks(u16);

impl Marks {
    /// Has an operand that is relative to the instruction pointer.
    pub const RELATIVE: Self = Self(1);
    /// A direct or conditional jump.
    pub const JUMP: Self = Self(2);
    /// A call: a return address on the stack points behind it.
    pub const CALL: Self = Self(4);
    /// Returns from the function.
    pub const RETURN: Self = Self(8);
    /// A system call, which the kernel may begin again: it sets the instruction pointer back by the length.
    pub const SYSCALL: Self = Self(16);
    /// `loop`, `jrcxz`, `xbegin`: jumps that have no long form, or whose target is more than a jump's.
    pub const SHORT: Self = Self(32);
    /// `endbr64`: where indirect jumps may lead.
    pub const LANDING: Self = Self(64);
    /// Some other instruction begins within this one (a jump past a `lock` prefix).
    pub const OVERLAPPED: Self = Self(128);
    /// Jumps or calls through a register or memory.
    pub const INDIRECT: Self = Self(256);
    /// Raises a trap or fault whatever happens (`int3`, `ud2`, `hlt`).
    pub const TRAP: Self = Self(512);

    /// Whether all of `other` are in it.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds marks.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A basic block: entered at its beginning only, left at its end only (or by an exception at a call).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Address of its first instruction.
    pub start: u64,
    /// Address behind its last instruction.
    pub end: u64,
    /// Where its instructions begin in the order of blocks.
    pub(crate) first: u32,
    /// How many instructions.
    pub(crate) count: u32,
}

/// Why control goes from one block to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// To the next instruction.
    Fall,
    /// A jump, taken always.
    Jump,
    /// A conditional jump, taken.
    Branch,
    /// An entry of a jump table.
    Table,
    /// Behind a call that returned.
    Return,
    /// From a call to the landing pad of an exception.
    Unwind,
    /// A call of a part of this function (`call 1f`).
    Call,
}

/// Where an edge leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A block of this function, by its index.
    Block(u32),
    /// Another function, as its tail call: it returns to the caller of this one.
    Function(FunctionId),
    /// An address outside of this function that is nobody's entry.
    Outside(u64),
    /// Some function that follows the ABI, through a pointer or from another file, as a tail call.
    Elsewhere,
    /// Back to the caller.
    Caller,
    /// Nobody knows: an indirect jump that was not understood.
    Unknown,
}

/// An edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// Index of the block that it leaves.
    pub from: u32,
    /// Where to.
    pub to: Target,
    /// Why.
    pub kind: EdgeKind,
}
