//! Functions: their entries, names, ranges of code, and the sources that know of them.
//!
//! Each byte of code belongs to at most one function. A function whose bytes would run into another
//! function ends where that one begins; a jump from one to the other is an edge from function to
//! function.

pub(crate) mod map;

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Index of a function within its module, in the order of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FunctionId(pub u32);

/// A function of a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Address at which calls enter it.
    pub entry: u64,
    /// Ranges of code; the first begins at the entry, others are parts that the compiler placed
    /// elsewhere (`.cold`), in ascending order.
    pub ranges: Vec<Range<u64>>,
    /// Names, the best known first; empty if no source names it.
    pub names: Vec<Box<str>>,
    /// The sources that know of it.
    pub sources: Sources,
    /// Its calling convention.
    pub convention: Convention,
}

impl Function {
    /// Returns the name to show: the first of its names, or `sub_` and its entry in hexadecimal.
    pub fn name(&self) -> String {
        self.names.first().map_or_else(|| format!("sub_{:x}", self.entry), |name| name.to_string())
    }

    /// Returns the bytes of all ranges.
    pub fn size(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// Whether the byte at `address` belongs to it.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&address))
    }
}

/// The calling convention of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Convention {
    /// System V ABI for x86-64, as in C, C++ and Rust; local functions may depart from it.
    SystemV,
    /// Go's internal ABI or its assembly: no register survives a call, and any register may hold an
    /// argument or a result.
    Go,
}

/// Set of the sources that know of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sources(u16);

impl Sources {
    /// Symbol table of the file or of its separate debug symbols.
    pub const SYMBOL: Self = Self(1);
    /// Dynamic symbols: other files can call it.
    pub const EXPORT: Self = Self(2);
    /// A frame description that begins at the entry.
    pub const FRAME: Self = Self(4);
    /// Go's function table.
    pub const GO: Self = Self(8);
    /// Stub of the procedure linkage table.
    pub const STUB: Self = Self(16);
    /// Entry point, initialiser or finaliser of the file.
    pub const START: Self = Self(32);
    /// A call in another function.
    pub const CALL: Self = Self(64);
    /// A resolver of an indirect function (IFUNC).
    pub const RESOLVER: Self = Self(128);

    /// Whether the set contains all of `other`.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the sources in `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns the names of the sources in the set.
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
