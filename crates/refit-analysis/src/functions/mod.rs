//! Functions: where each begins, what it is called, which bytes are its own, and who says so.
//!
//! Every byte of code belongs to one function at most. A function that another one's bytes would run into ends where
//! that one begins; what jumps across is an edge from function to function then.

pub(crate) mod map;

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Number of a function within its module, in the order of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FunctionId(pub u32);

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Where it is entered when it is called.
    pub entry: u64,
    /// The bytes that are its own; the first range begins with the entry, others are parts that the compiler put elsewhere
    /// (`.cold`), in ascending order.
    pub ranges: Vec<Range<u64>>,
    /// Its names, the best known first; empty if nothing names it.
    pub names: Vec<Box<str>>,
    /// Who knows of it.
    pub sources: Sources,
    /// How it is called.
    pub convention: Convention,
}

impl Function {
    /// What to call it: the first of its names, or `sub_` and its entry in hexadecimal.
    pub fn name(&self) -> String {
        self.names.first().map_or_else(|| format!("sub_{:x}", self.entry), |name| name.to_string())
    }

    /// Bytes of all its ranges.
    pub fn size(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// Whether the byte at `address` is one of its own.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&address))
    }
}

/// Who calls a function how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Convention {
    /// System V ABI for x86-64, as C, C++ and Rust have it; local functions may depart from it.
    SystemV,
    /// Go's internal ABI or its assembly: no register survives a call, arguments and results in any.
    Go,
}

/// Set of sources that know of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sources(u16);

impl Sources {
    /// Symbol table of the file itself or of its separate debug symbols.
    pub const SYMBOL: Self = Self(1);
    /// Dynamic symbols: other files can call it.
    pub const EXPORT: Self = Self(2);
    /// A frame description begins there.
    pub const FRAME: Self = Self(4);
    /// Go's function table.
    pub const GO: Self = Self(8);
    /// Stub of the procedure linkage table.
    pub const STUB: Self = Self(16);
    /// Entry point, initialiser or finaliser of the file.
    pub const START: Self = Self(32);
    /// A call of another function leads there.
    pub const CALL: Self = Self(64);
    /// Picks the implementation of an indirect function (IFUNC).
    pub const RESOLVER: Self = Self(128);

    /// Whether all of `other` are in it.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds sources.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Their names.
    pub fn names(self) -> Vec<&'static str> {
        const NAMES: [(Sources, &str); 8] = [
            (Sources::SYMBOL, "symbol"),
            (Sources::EXPORT, "export"),
            (Sources::FRAME, "frame"),
            (Sources::GO, "go"),
            (Sources::STUB, "stub"),
            (Sources::START, "start"),
            (Sources::CALL, "call"),
            (Sources::RESOLVER, "resolver"),
        ];
        NAMES.iter().filter(|(s, _)| self.contains(*s)).map(|(_, name)| *name).collect()
    }
}
