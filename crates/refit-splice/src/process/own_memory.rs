//! Searches the memory that a program writes to for addresses.

use std::ops::Range;

use refit_sys::foreign::gather;
use refit_sys::maps::Mapping;
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::pagemap::Pagemap;
use refit_sys::status::Status;

use super::program::Program;

/// Maximum amount of memory that is searched in a stop, in bytes; this takes some ten milliseconds.
pub(crate) const MOST: u64 = 128 << 20;
/// Largest address space whose pages are looked up, in bytes.
const WIDEST: u64 = 1 << 36;
/// Bytes that are read at once: whole pages.
const CHUNK: usize = 1 << 18;
/// Number of these that a thread is started for, and maximum number of such threads.
const EACH: usize = 8;
const MOST_SEARCHERS: usize = 8;

/// The values that are searched for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'w> {
    /// Where they are.
    pub(crate) within: &'w [Range<u64>],
    /// Whether a value there is one of them.
    pub(crate) is: &'w (dyn Fn(u64) -> bool + Sync),
}

impl<'w> Wanted<'w> {
    /// All values in these ranges.
    pub(crate) fn all(within: &'w [Range<u64>]) -> Self {
        Self { within, is: &|_| true }
    }

    /// Whether this value is wanted.
    pub(crate) fn has(&self, word: u64) -> bool {
        self.within.iter().any(|one| word.wrapping_sub(one.start) < one.end - one.start)
            && (self.is)(word)
    }
}

/// Returns the mappings that only this program writes to.
pub(super) fn own(mappings: &[Mapping]) -> impl Iterator<Item = &Mapping> + Clone {
    mappings.iter().filter(|one| one.readable && one.writable && !one.shared)
}

/// Returns how much memory of its own a program has, in bytes.
pub(super) fn size(thread: u32) -> Option<u64> {
    let status = Status::of(thread).ok()?;
    Some(["RssAnon", "VmSwap"].iter().filter_map(|field| status.bytes(field)).sum())
}

/// Returns the ranges of pages that the program has written to; `None` if there are too many.
pub(super) fn written(thread: u32, mappings: &[Mapping]) -> Option<Vec<Range<u64>>> {
    // To look at each page takes long where there are many.
    if size(thread)? > MOST {
        return None;
    }
    let wide: u64 = own(mappings).map(|one| one.range.end - one.range.start).sum();
    let pagemap = Pagemap::of(thread).ok()?;
    if wide > WIDEST {
        return None;
    }
    let mut all = Vec::new();
    for mapping in own(mappings) {
        all.extend(pages(&pagemap, mapping)?);
    }
    (bytes(&all) <= MOST).then_some(all)
}

/// Returns the size of ranges of pages, in bytes.
pub(super) fn bytes(pages: &[Range<u64>]) -> u64 {
    pages.iter().map(|range| range.end - range.start).sum()
}

/// Returns the ranges of pages of a mapping that are there; `None` if that cannot be found out.
pub(crate) fn pages(pagemap: &Pagemap, mapping: &Mapping) -> Option<Vec<Range<u64>>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    let pages = pagemap.pages(mapping.range.clone()).ok()?;
    let there = pages.iter().zip((mapping.range.start..).step_by(PAGE_SIZE_U64 as usize));
    for (_, begin) in there.filter(|(page, _)| page.present() || page.swapped()) {
        match all.last_mut() {
            Some(last) if last.end == begin => last.end += PAGE_SIZE_U64,
            _ => all.push(begin..begin + PAGE_SIZE_U64),
        }
    }
    Some(all)
}

/// Returns the wanted words in these ranges of pages, with their addresses, in the order of the
/// ranges. Several threads search, since the program stands still meanwhile.
pub(crate) fn search(
    program: &Program,
    pages: &[Range<u64>],
    wanted: Wanted<'_>,
) -> Vec<(u64, u64)> {
    let chunks: Vec<Range<u64>> = chunks(pages).collect();
    let searchers = std::thread::available_parallelism().map_or(1, usize::from);
    let searchers = searchers.min(MOST_SEARCHERS).min(chunks.len().div_ceil(EACH));
    if searchers < 2 {
        return search_in_turn(program, chunks, wanted);
    }
    let parts = chunks.chunks(chunks.len().div_ceil(searchers));
    std::thread::scope(|scope| {
        let search = |part: &[Range<u64>]| search_in_turn(program, part.iter().cloned(), wanted);
        let each = parts.map(|part| scope.spawn(move || search(part)));
        let each: Vec<_> = each.collect();
        let found = each.into_iter().flat_map(|one| match one.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        found.collect()
    })
}

/// Divides ranges of pages into parts that are read at once.
pub(super) fn chunks(pages: &[Range<u64>]) -> impl Iterator<Item = Range<u64>> {
    pages.iter().flat_map(|range| {
        let begins = range.clone().step_by(CHUNK);
        begins.map(|begin| begin..range.end.min(begin + CHUNK as u64))
    })
}

/// Returns the wanted words in these [`chunks`], with their addresses.
pub(super) fn search_in_turn(
    program: &Program,
    chunks: impl IntoIterator<Item = Range<u64>>,
    wanted: Wanted<'_>,
) -> Vec<(u64, u64)> {
    let (mut buffer, mut found) = (vec![0; CHUNK], Vec::new());
    for chunk in chunks {
        let bytes = &mut buffer[..(chunk.end - chunk.start) as usize];
        // The pages are there, so nobody is waited for.
        let copied = gather(program.face(), std::slice::from_ref(&chunk), bytes);
        if copied.ok() == Some(bytes.len()) || program.read(chunk.start, bytes).is_ok() {
            add_words(chunk.start, bytes, wanted, &mut found);
            continue;
        }
        // What has been unmapped since is not looked at, but what is beside it is.
        for page in chunk.step_by(PAGE_SIZE_U64 as usize) {
            let bytes = &mut buffer[..PAGE_SIZE_U64 as usize];
            if program.read(page, bytes).is_ok() {
                add_words(page, bytes, wanted, &mut found);
            }
        }
    }
    found
}

/// Adds the wanted words in `bytes`, which are those at `begin`.
fn add_words(begin: u64, bytes: &[u8], wanted: Wanted<'_>, found: &mut Vec<(u64, u64)>) {
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in (begin..).step_by(8).zip(words) {
        let word = u64::from_le_bytes(*word);
        if wanted.has(word) {
            found.push((at, word));
        }
    }
}
