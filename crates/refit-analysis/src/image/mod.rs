//! One ELF file for x86-64, as the analysis needs it.
//!
//! Everything here is what the file *says*; what follows from its instructions is found in [`crate::flow`]. Tables that
//! are damaged are left out, as far as they are: a file without sections, symbols or frame descriptions is analysed from its
//! entry point. Only a file that no kernel would run for this machine is refused.

mod contents;
mod elf;
mod error;
mod frames;
mod go;
pub mod landing;
mod names;
mod read;
mod relocations;
mod separate;
mod symbols;

use std::ops::Range;
use std::path::{Path, PathBuf};

pub use error::OpenError;
pub use frames::Frame;
pub use symbols::Symbol;

/// Larger files are not read: their bytes are kept in memory.
pub const LARGEST: u64 = 2 << 30;

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A program at a fixed address that loads shared objects.
    Fixed,
    /// A program at a fixed address that loads nothing.
    Static,
    /// A position-independent program.
    Pie,
    /// A position-independent program that loads nothing.
    StaticPie,
    /// A shared object.
    Shared,
}

/// What the kernel or the loader maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Addresses in memory that the file has bytes for.
    pub addresses: Range<u64>,
    /// Where these bytes begin in the file.
    pub offset: u64,
    /// Whether it is executable.
    pub executable: bool,
    /// Whether it is writable.
    pub writable: bool,
}

/// A range that holds code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// If it holds stubs of the procedure linkage table: bytes of one.
    pub stub: Option<u64>,
}

/// An ELF file.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    data: Vec<u8>,
    /// Where `data` has zeros instead of debug information: ascending, apart from each other.
    left_out: Vec<Range<usize>>,
    kind: Kind,
    build_id: Vec<u8>,
    segments: Vec<Segment>,
    /// What the loader makes read-only once it has relocated it.
    constant: Vec<Range<u64>>,
    code: Vec<Code>,
    starts: Vec<u64>,
    symbols: Vec<Symbol>,
    frames: frames::Frames,
    go: Vec<(u64, Box<str>)>,
    relocations: relocations::Relocations,
}

impl Image {
    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What kind of file it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its build id; empty if it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// Its contents but for its debug information: pieces, and where in the file they begin.
    pub fn contents(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let ends = self.left_out.iter().map(|gap| gap.start).chain([self.data.len()]);
        let begins = std::iter::once(0).chain(self.left_out.iter().map(|gap| gap.end));
        begins.zip(ends).map(|(begin, end)| (begin, &self.data[begin..end]))
    }

    /// What is mapped of it, by ascending address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Where its code is, by ascending address; no two overlap.
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// Symbols of functions, its own and those of its separate debug symbols, by ascending address.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Frame descriptions by ascending address.
    pub fn frames(&self) -> &[Frame] {
        &self.frames.list
    }

    /// The frame description that `address` is in.
    pub fn frame_at(&self, address: u64) -> Option<&Frame> {
        let frames = &self.frames.list;
        let next = frames.partition_point(|f| f.addresses.start <= address);
        frames[..next].last().filter(|f| f.addresses.contains(&address))
    }

    /// Whether the function holds nothing on the stack at `address`: the stack pointer is where a call leaves it. None if no
    /// frame description says.
    pub fn frame_is_empty_at(&self, address: u64) -> Option<bool> {
        let section = self.frames.section();
        let length = usize::try_from(section.end - section.start).ok()?;
        let frame = self.frame_at(address)?;
        self.frames.is_empty_at(self.bytes(section.start, length)?, frame, address)
    }

    /// Whether an address in `range` other than `but` is stored somewhere in the file once it is loaded.
    pub fn points_within(&self, range: Range<u64>, but: u64) -> bool {
        let stored = &self.relocations.stored;
        let first = stored.partition_point(|a| *a < range.start);
        stored[first..].iter().take_while(|a| **a < range.end).any(|a| *a != but)
    }

    /// Functions of Go by ascending entry, with their names.
    pub fn go_functions(&self) -> &[(u64, Box<str>)] {
        &self.go
    }

    /// Entry point, initialisers and finalisers.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Functions that pick the implementation of others when the file is loaded.
    pub fn resolvers(&self) -> &[u64] {
        &self.relocations.resolvers
    }

    /// The function whose address the loader stores at `slot`: one of another file, or one that a function of this file
    /// picks. Its name is empty where that one has none.
    pub fn import_at(&self, slot: u64) -> Option<&str> {
        let imports = &self.relocations.imports;
        if let Ok(at) = imports.binary_search_by_key(&slot, |(address, _)| *address) {
            return Some(&imports[at].1);
        }
        let picked = &self.relocations.picked;
        let at = picked.binary_search_by_key(&slot, |(address, _)| *address).ok()?;
        let resolver = picked[at].1;
        let first = self.symbols.partition_point(|s| s.address < resolver);
        let symbols = self.symbols[first..].iter().take_while(|s| s.address == resolver);
        Some(symbols.min_by_key(|s| s.rank).map_or("", |s| &s.name))
    }

    /// The piece of code that `address` is in.
    pub fn code_at(&self, address: u64) -> Option<&Code> {
        let next = self.code.partition_point(|c| c.addresses.start <= address);
        self.code[..next].last().filter(|c| c.addresses.contains(&address))
    }

    /// `length` bytes at `address`, as they are in the file; none if they are not all in it.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.bytes_from(address).and_then(|bytes| bytes.get(..length))
    }

    /// All bytes from `address` to the end of its segment.
    pub fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        let next = self.segments.partition_point(|s| s.addresses.start <= address);
        let segment = self.segments[..next].last().filter(|s| s.addresses.contains(&address))?;
        let begin = segment.offset + (address - segment.addresses.start);
        let end = segment.offset + (segment.addresses.end - segment.addresses.start);
        self.data.get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)
    }

    /// Whether nothing can change `length` bytes at `address` once the file is loaded.
    pub fn is_constant(&self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else { return false };
        let within = |r: &Range<u64>| r.start <= address && end <= r.end;
        self.segments.iter().any(|s| !s.writable && within(&s.addresses))
            || self.constant.iter().any(within)
    }

    /// The address that is stored at `address` once the file is loaded, if it is one of this file.
    pub fn pointer(&self, address: u64) -> Option<u64> {
        let pointers = &self.relocations.pointers;
        if let Ok(at) = pointers.binary_search_by_key(&address, |(place, _)| *place) {
            return Some(pointers[at].1);
        }
        let bytes = self.bytes(address, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The signed 4-byte number at `address`.
    pub fn offset32(&self, address: u64) -> Option<i32> {
        Some(i32::from_le_bytes(self.bytes(address, 4)?.try_into().ok()?))
    }
}
