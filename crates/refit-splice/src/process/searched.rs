//! Searches the memory of a program while it runs, so that a stop that follows has little to
//! search.
//!
//! The kernel notes which pages the program writes to: a userfaultfd of the program write-protects
//! them, and the kernel lifts the protection at the first write without asking anybody
//! (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7). If refit is killed, the kernel closes the descriptor, and
//! the memory is ordinary again.
//!
//! # Correctness
//!
//! A page is protected first, and then read. When the program has stopped, a page is either still
//! protected, and has been read with the contents that it has now; or it is not, and is read again.
//! Pages that are new, or in other mappings than those that were protected, are read as well.
//! Memory that a device writes to (a direct read from a disk that was under way) is not noticed;
//! no program reads its stacks or contexts from a disk so.
//!
//! What was found is read once more, so that words of memory that has been unmapped, or was written
//! to meanwhile, do not count.

use std::ops::Range;

use refit_sys::maps::Mapping;
use refit_sys::pagemap::{Categories, Pagemap, Scan};
use refit_sys::userfault::{Modes, Userfault};
use tracing::debug;

use super::own_memory::{self, MOST, Wanted};
use super::program::Program;

/// A search of a program that runs.
#[derive(Debug)]
pub(crate) struct Searched {
    /// Protects the pages until it is dropped.
    _protects: Userfault,
    pagemap: Pagemap,
    /// The values that were searched for.
    within: Vec<Range<u64>>,
    /// Words with such values, by address.
    found: Vec<(u64, u64)>,
}

impl Searched {
    /// Searches a program for words whose values are in one of `within`; `protects` is for its
    /// memory. `None` if the kernel does not tell which pages were written to.
    pub(super) fn new(
        program: &Program,
        protects: Userfault,
        within: Vec<Range<u64>>,
    ) -> Option<Self> {
        let pagemap = Pagemap::of(program.face()).ok()?;
        let mappings = program.mappings().ok()?;
        let mut pages = Vec::new();
        for mapping in own_memory::own(&mappings) {
            // Memory that another userfaultfd serves, or that cannot be protected, is searched in
            // the stop.
            if protects.register(mapping.range.clone(), Modes::WRITE_PROTECT).is_ok() {
                pages.extend(scan(&pagemap, mapping, &PROTECT)?);
            }
        }
        let chunks = own_memory::chunks(&pages);
        let found = own_memory::search_in_turn(program, chunks, Wanted::all(&within));
        let bytes = own_memory::bytes(&pages);
        debug!(process = program.id(), bytes, words = found.len(), "searched before the stop");
        Some(Self { _protects: protects, pagemap, within, found })
    }

    /// Whether all wanted words were searched for.
    pub(super) fn covers(&self, wanted: Wanted<'_>) -> bool {
        wanted.within.iter().all(|part| {
            self.within.iter().any(|one| one.start <= part.start && part.end <= one.end)
        })
    }

    /// Searches what the stopped program, which has these mappings now, has written to since.
    /// Returns all words that have been found, with their addresses, in their order: some may be
    /// gone. `None` if too much has been written to.
    pub(super) fn complete(
        &self,
        program: &Program,
        mappings: &[Mapping],
    ) -> Option<Vec<(u64, u64)>> {
        let mut pages = Vec::new();
        for mapping in own_memory::own(mappings) {
            pages.extend(scan(&self.pagemap, mapping, &WRITTEN)?);
            pages.extend(scan(&self.pagemap, mapping, &FOREIGN)?);
        }
        if own_memory::bytes(&pages) > MOST {
            return None;
        }
        let mut words = own_memory::search(program, &pages, Wanted::all(&self.within));
        words.extend(&self.found);
        words.sort_unstable();
        words.dedup();
        Some(words)
    }
}

/// Pages that are there.
const THERE: Categories = Categories::PRESENT.union(Categories::SWAPPED);
/// Protects those whose writes the kernel notices.
const PROTECT: Scan = Scan {
    all: Categories::FOLLOWED,
    any: THERE,
    none: Categories::empty(),
    tell: Categories::empty(),
    most: 0,
    protect: true,
    must_follow: false,
};
/// Finds those that are not protected.
const WRITTEN: Scan =
    Scan { all: Categories::WRITTEN.union(Categories::FOLLOWED), protect: false, ..PROTECT };
/// Finds those whose writes the kernel does not notice.
const FOREIGN: Scan =
    Scan { all: Categories::empty(), none: Categories::FOLLOWED, protect: false, ..PROTECT };

/// Returns the ranges of pages of a mapping that match a scan; `None` if the kernel is too old.
fn scan(pagemap: &Pagemap, mapping: &Mapping, scan: &Scan) -> Option<Vec<Range<u64>>> {
    let (mut regions, mut begin) = (Vec::new(), mapping.range.start);
    while begin < mapping.range.end {
        begin = pagemap.scan(begin..mapping.range.end, scan, &mut regions).ok()?;
    }
    Some(regions.into_iter().map(|region| region.range).collect())
}
