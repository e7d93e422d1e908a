//! One ELF file for x86-64, as the analysis needs it.
//!
//! This module holds the file's own statements; [`crate::flow`] derives facts from its
//! instructions. Damaged tables are left out as far as they are damaged: a file without sections,
//! symbols or frame descriptions is analysed from its entry point. A file is refused only if no
//! kernel would run it on this machine.

mod contents;
mod distance_tables;
mod elf;
mod error;
pub mod expression;
mod frames;
mod go;
pub mod landing;
mod language_data;
mod names;
pub mod procedure;
mod read;
mod relocations;
mod separate;
mod sequences;
mod symbols;
mod tracepoints;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use refit_sys::memory::PAGE_SIZE_U64;

pub use error::OpenError;
pub use frames::Frame;
pub use language_data::LanguageData;
pub use procedure::Procedure;
pub(crate) use separate::{DEBUG_ROOT, MOST_UNPACKED};
pub use sequences::Sequence;
pub use symbols::Symbol;
pub use tracepoints::{ArgumentPlace, Tracepoint, TracepointArgument};

/// Largest file that is read, in bytes: the contents are kept in memory.
pub const LARGEST: u64 = 2 << 30;

/// The kind of a file.
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

/// A range of memory that the kernel or the loader maps from the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Addresses that the file has bytes for.
    pub addresses: Range<u64>,
    /// Offset of these bytes in the file.
    pub offset: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
    /// Whether it is mapped writable.
    pub writable: bool,
}

/// A range of addresses that holds code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// The addresses.
    pub addresses: Range<u64>,
    /// Bytes of one stub, if the range holds stubs of the procedure linkage table.
    pub stub: Option<u64>,
}

/// An ELF file, read and checked.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    data: Vec<u8>,
    /// Ranges of `data` that hold zeros instead of debug information: ascending, disjoint.
    left_out: Vec<Range<usize>>,
    kind: Kind,
    build_id: Vec<u8>,
    segments: Vec<Segment>,
    /// Ranges that the loader makes read-only once it has relocated them.
    constant: Vec<Range<u64>>,
    code: Vec<Code>,
    starts: Vec<u64>,
    symbols: Vec<Symbol>,
    frames: frames::Frames,
    go: go::Go,
    relocations: relocations::Relocations,
    sequences: Vec<Sequence>,
    tracepoints: Vec<Tracepoint>,
    /// Addresses at which tables of distances begin, once they are asked for.
    distance_tables: OnceLock<Vec<u64>>,
}

impl Image {
    /// Returns the path that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kind of the file.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its build id; empty if it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// Returns its contents except for debug information: pieces, and their offsets in the file.
    pub fn contents(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let ends = self.left_out.iter().map(|gap| gap.start).chain([self.data.len()]);
        let begins = std::iter::once(0).chain(self.left_out.iter().map(|gap| gap.end));
        begins.zip(ends).map(|(begin, end)| (begin, &self.data[begin..end]))
    }

    /// Returns the mapped ranges, by ascending address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the ranges of code, by ascending address; they are disjoint.
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// Returns symbols of functions, its own and those of its separate debug symbols, by ascending
    /// address.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Returns the places that its authors have marked for tools.
    pub fn tracepoints(&self) -> &[Tracepoint] {
        &self.tracepoints
    }

    /// Returns frame descriptions by ascending address.
    pub fn frames(&self) -> &[Frame] {
        &self.frames.list
    }

    /// Returns the frame description that covers `address`.
    pub fn frame_at(&self, address: u64) -> Option<&Frame> {
        let frames = &self.frames.list;
        let next = frames.partition_point(|f| f.addresses.start <= address);
        frames[..next].last().filter(|f| f.addresses.contains(&address))
    }

    /// Whether the function holds nothing on the stack at `address`: the stack pointer is where a
    /// call leaves it. `None` if no frame description says.
    pub fn frame_is_empty_at(&self, address: u64) -> Option<bool> {
        let section = self.frames.section();
        let length = usize::try_from(section.end - section.start).ok()?;
        let frame = self.frame_at(address)?;
        self.frames.is_empty_at(self.bytes(section.start, length)?, frame, address)
    }

    /// Whether, once the file is loaded, it stores an address in `range` other than `but` anywhere.
    pub fn points_within(&self, range: Range<u64>, but: u64) -> bool {
        let stored = &self.relocations.stored;
        let first = stored.partition_point(|a| *a < range.start);
        stored[first..].iter().take_while(|a| **a < range.end).any(|a| *a != but)
    }

    /// Returns restartable sequences, by ascending address.
    pub fn sequences(&self) -> &[Sequence] {
        &self.sequences
    }

    /// Returns Go's functions by ascending entry, with their names.
    pub fn go_functions(&self) -> &[(u64, Box<str>)] {
        &self.go.functions
    }

    /// Returns the entry point, initialisers and finalisers.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Returns the resolvers of indirect functions, which the loader calls to choose an
    /// implementation.
    pub fn resolvers(&self) -> &[u64] {
        &self.relocations.resolvers
    }

    /// Returns the name of the function whose address the loader stores at `slot`: one of another
    /// file, or one that a resolver of this file chooses. Empty if the latter has no name.
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

    /// Returns the address of a variable by its name, if the file's symbols name it.
    pub fn variable(&self, name: &str) -> Option<u64> {
        symbols::variable(&elf::Elf::parse(&self.path, &self.data).ok()?, name)
    }

    /// Returns the range of code that contains `address`.
    pub fn code_at(&self, address: u64) -> Option<&Code> {
        let next = self.code.partition_point(|c| c.addresses.start <= address);
        self.code[..next].last().filter(|c| c.addresses.contains(&address))
    }

    /// Returns `length` bytes at `address`, as they are in the file; `None` if the file does not
    /// have all of them.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.bytes_from(address).and_then(|bytes| bytes.get(..length))
    }

    /// Returns all bytes from `address` to the end of its segment.
    pub fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        let next = self.segments.partition_point(|s| s.addresses.start <= address);
        let segment = self.segments[..next].last().filter(|s| s.addresses.contains(&address))?;
        let begin = segment.offset + (address - segment.addresses.start);
        let end = segment.offset + (segment.addresses.end - segment.addresses.start);
        self.data.get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)
    }

    /// Returns the address of the first byte of a mapping of code that begins at `offset` of the
    /// file, before the kernel's load bias is added; `None` if the file has no code there, and so
    /// is not the file that is mapped.
    pub fn address_of_offset(&self, offset: u64) -> Option<u64> {
        // The kernel maps whole pages: a mapping may begin some bytes before its segment.
        let mut segments = self.segments.iter().filter(|s| s.executable);
        let found = segments.find(|segment| {
            let length = segment.addresses.end - segment.addresses.start;
            offset <= segment.offset.saturating_add(length)
                && segment.offset < offset.saturating_add(PAGE_SIZE_U64)
        })?;
        Some(found.addresses.start.wrapping_add(offset.wrapping_sub(found.offset)))
    }

    /// Whether `length` bytes at `address` are read-only once the file is loaded.
    pub fn is_constant(&self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else { return false };
        let within = |r: &Range<u64>| r.start <= address && end <= r.end;
        self.segments.iter().any(|s| !s.writable && within(&s.addresses))
            || self.constant.iter().any(within)
    }

    /// Returns the address of this file that is stored at `address` once the file is loaded.
    pub fn pointer(&self, address: u64) -> Option<u64> {
        let pointers = &self.relocations.pointers;
        if let Ok(at) = pointers.binary_search_by_key(&address, |(place, _)| *place) {
            return Some(pointers[at].1);
        }
        let bytes = self.bytes(address, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Returns the signed 4-byte number at `address`.
    pub fn offset32(&self, address: u64) -> Option<i32> {
        Some(i32::from_le_bytes(self.bytes(address, 4)?.try_into().ok()?))
    }
}
