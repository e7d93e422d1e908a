//! Merges all sources of functions into one list of pieces.
//!
//! A *start* is an address that some source declares to be the beginning of a function or of a part
//! of one. Starts cut the code into pieces: each piece ends where its source says, or, if no source
//! does, at the next start. Pieces never overlap. The survey decides later, by the jumps to them,
//! which pieces are parts of others.

use std::collections::BTreeMap;

use crate::flow::exits::stub_target;
use crate::functions::{Convention, Function, Sources};
use crate::image::{Image, Symbol};

/// A piece of code that begins at a start.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// The function that the piece is, unless it turns out to be a part of another one.
    pub(crate) function: Function,
    /// Whether a source gives its end; otherwise it ends where the next piece begins.
    pub(crate) sized: bool,
    /// Whether it may be a part of a function.
    pub(crate) part: Part,
}

/// Whether a piece may be a part of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A function.
    No,
    /// Perhaps a part: a frame description is its only source.
    Perhaps,
    /// Probably a part: its name says so (`.cold`), or a stack frame exists already at its first
    /// byte.
    Likely,
}

/// The statements of all sources about one start.
#[derive(Debug, Default)]
struct Start<'a> {
    sources: Sources,
    end: u64,
    names: Vec<(u8, &'a str)>,
    go: bool,
    whole: bool,
}

/// Returns the pieces of a file by ascending address.
pub(crate) fn pieces(image: &Image) -> Vec<Piece> {
    let stubs = stubs(image);
    let starts = starts(image, &stubs);
    let addresses: Vec<u64> = starts.keys().copied().collect();
    let mut pieces = Vec::with_capacity(starts.len());
    for (i, (&entry, start)) in starts.iter().enumerate() {
        let Some(code) = image.code_at(entry) else { continue };
        let next = addresses.get(i + 1).copied().unwrap_or(u64::MAX);
        let limit = next.min(code.addresses.end);
        let sized = start.end > entry;
        let end = if sized { start.end.min(limit) } else { limit };
        pieces.push(piece(entry, end, sized, start));
    }
    pieces
}

/// Returns a piece that is known by a call only; it reaches to `end`.
pub(crate) fn called(entry: u64, end: u64) -> Piece {
    let start = Start { sources: Sources::CALL, ..Start::default() };
    piece(entry, end, false, &start)
}

fn piece(entry: u64, end: u64, sized: bool, start: &Start) -> Piece {
    let mut names = start.names.clone();
    names.sort_by_key(|(rank, name)| (*rank, name.len(), *name));
    names.dedup_by_key(|(_, name)| *name);
    // Both symbol tables may have the same name, with different ranks.
    let mut unique: Vec<Box<str>> = Vec::with_capacity(names.len());
    for (_, name) in names {
        if !unique.iter().any(|n| &**n == name) {
            unique.push(name.into());
        }
    }
    let only_frame = start.sources == Sources::FRAME;
    let part = if unique.iter().any(|n| is_cold(n)) || (only_frame && !start.whole) {
        Part::Likely
    } else if only_frame {
        Part::Perhaps
    } else {
        Part::No
    };
    let convention = if start.go { Convention::Go } else { Convention::SystemV };
    let ranges = std::iter::once(entry..end).collect();
    let function = Function { entry, ranges, names: unique, sources: start.sources, convention };
    Piece { function, sized, part }
}

fn is_cold(name: &str) -> bool {
    let tail = name.rsplit_once(".cold").map(|(_, tail)| tail);
    tail.is_some_and(|t| t.is_empty() || t.starts_with('.') || t.starts_with('_'))
}

fn starts<'a>(image: &'a Image, stubs: &'a [(u64, u64, String)]) -> BTreeMap<u64, Start<'a>> {
    let mut starts: BTreeMap<u64, Start<'a>> = BTreeMap::new();
    for symbol in image.symbols().iter().filter(|s| s.function) {
        let start = starts.entry(symbol.address).or_default();
        start.end = start.end.max(symbol.address.saturating_add(symbol.size));
        name(start, symbol);
    }
    for frame in image.frames() {
        let (from, to) = (frame.addresses.start, frame.addresses.end);
        // A second frame description within a function that a symbol spans does not begin another
        // function.
        let before = starts.range(..from).next_back();
        if before.is_some_and(|(_, s)| s.end > from) && !starts.contains_key(&from) {
            continue;
        }
        let start = starts.entry(from).or_default();
        start.sources.insert(Sources::FRAME);
        start.whole = frame.whole;
        start.end = start.end.max(to);
    }
    for symbol in image.symbols().iter().filter(|s| !s.function) {
        let before = starts.range(..symbol.address).next_back();
        if before.is_none_or(|(_, s)| s.end <= symbol.address) {
            name(starts.entry(symbol.address).or_default(), symbol);
        }
    }
    for (i, (entry, called)) in image.go_functions().iter().enumerate() {
        let start = starts.entry(*entry).or_default();
        start.sources.insert(Sources::GO);
        start.go = true;
        if let Some((next, _)) = image.go_functions().get(i + 1) {
            start.end = start.end.max(*next);
        }
        if !called.is_empty() {
            start.names.push((0, called));
        }
    }
    for (entry, end, called) in stubs {
        let start = starts.entry(*entry).or_default();
        start.sources.insert(Sources::STUB);
        start.end = start.end.max(*end);
        if !called.is_empty() {
            start.names.push((0, called));
        }
    }
    let others = [(image.starts(), Sources::START), (image.resolvers(), Sources::RESOLVER)];
    for (list, source) in others {
        for &address in list {
            starts.entry(address).or_default().sources.insert(source);
        }
    }
    starts
}

fn name<'a>(start: &mut Start<'a>, symbol: &'a Symbol) {
    let source = if symbol.dynamic { Sources::EXPORT } else { Sources::SYMBOL };
    start.sources.insert(source);
    if symbol.resolver {
        start.sources.insert(Sources::RESOLVER);
    }
    start.names.push((symbol.rank, &symbol.name));
}

/// Returns the stubs of the procedure linkage table: begin, end, name with `@plt`.
fn stubs(image: &Image) -> Vec<(u64, u64, String)> {
    let mut stubs = Vec::new();
    for code in image.code() {
        let Some(size) = code.stub else { continue };
        let mut at = code.addresses.start;
        while at < code.addresses.end {
            let end = (at + size).min(code.addresses.end);
            let name = stub_target(image, at);
            stubs.push((at, end, name.map_or_else(String::new, |n| format!("{n}@plt"))));
            at = end;
        }
    }
    stubs
}
