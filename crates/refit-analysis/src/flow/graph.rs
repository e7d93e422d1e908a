//! The parts of a control-flow graph: instructions, basic blocks, edges.

use crate::functions::FunctionId;

/// An instruction of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub address: u64,
    /// Its length in bytes.
    pub length: u8,
    /// Properties that matter to code which moves it.
    pub marks: Marks,
}

impl Instruction {
    /// Returns the address after it.
    pub fn end(&self) -> u64 {
        self.address + u64::from(self.length)
    }
}

/// Length in bytes of the longest instruction.
pub(crate) const LONGEST: u64 = 15;

/// Set of the properties of an instruction that matter to code which moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks(u16);

impl Marks {
    /// Has an operand relative to the instruction pointer.
    pub const RELATIVE: Self = Self(1);
    /// A direct or conditional jump.
    pub const JUMP: Self = Self(2);
    /// A call: a return address on the stack points after it.
    pub const CALL: Self = Self(4);
    /// Returns from the function.
    pub const RETURN: Self = Self(8);
    /// A system call. The kernel may restart it by setting the instruction pointer back by its
    /// length.
    pub const SYSCALL: Self = Self(16);
    /// `loop`, `jrcxz`, `xbegin`: jumps that have no long form, or that use their target for more
    /// than a jump.
    pub const SHORT: Self = Self(32);
    /// `endbr64`: marks the target of indirect jumps.
    pub const LANDING: Self = Self(64);
    /// Another instruction begins within this one (as when a jump skips a `lock` prefix).
    pub const OVERLAPPED: Self = Self(128);
    /// Jumps or calls through a register or memory.
    pub const INDIRECT: Self = Self(256);
    /// Always raises a trap or fault (`int3`, `ud2`, `hlt`).
    pub const TRAP: Self = Self(512);

    /// Whether the set contains all of `other`.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the marks in `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A basic block: entered at its beginning only, left at its end only (or by an exception at a
/// call).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Address of its first instruction.
    pub start: u64,
    /// Address after its last instruction.
    pub end: u64,
    /// Index of its first instruction in the order of blocks.
    pub(crate) first: u32,
    /// Number of its instructions.
    pub(crate) count: u32,
}

/// A table by which an indirect jump chooses its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpTable {
    /// Address of the jump.
    pub jump: u64,
    /// Address of the instruction that reads an entry: the jump itself, or one before it.
    pub load: u64,
    /// Address of the first entry.
    pub address: u64,
    /// Address that is added to each entry, of 4 bytes; `None` if entries are addresses of 8 bytes.
    pub base: Option<u64>,
    /// The targets of the entries.
    pub targets: Vec<u64>,
}

/// Why control goes from one block to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// Falls through to the next instruction.
    Fall,
    /// An unconditional jump.
    Jump,
    /// A conditional jump that is taken.
    Branch,
    /// An entry of a jump table.
    Table,
    /// From a call to the instruction that it returns to.
    Return,
    /// From a call to the landing pad of an exception.
    Unwind,
    /// A call of a part of this function (`call 1f`).
    Call,
}

/// The target of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A block of this function, by its index.
    Block(u32),
    /// Another function, by a tail call: it returns to the caller of this one.
    Function(FunctionId),
    /// An address outside of this function at which no function is entered.
    Outside(u64),
    /// A function that follows the ABI, by a tail call through a pointer or to another file.
    Elsewhere,
    /// The caller.
    Caller,
    /// An unknown address: the target of an indirect jump that was not understood.
    Unknown,
}

/// An edge of the control-flow graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// Index of the block that it leaves.
    pub from: u32,
    /// Its target.
    pub to: Target,
    /// The reason for which control takes it.
    pub kind: EdgeKind,
}
