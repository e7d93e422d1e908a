//! Has the kernel copy pages of code before the program is stopped to change them.
//!
//! Other processes map the same file, so the first change of a page makes the kernel copy it. For
//! thousands of pages, this takes most of the time for which the program would be stopped. So refit
//! makes the first change of each page while the program runs, and writes a byte that is there
//! already.
//!
//! The byte is as it was analysed if the page is still that of the file, and the program cannot
//! change it, since it may not write to the mapping. If another tool puts a breakpoint there at
//! that moment, it changes the first byte of an instruction: the byte that is written is the last
//! one of a site.

use std::collections::BTreeMap;

use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::pagemap::{Page, Pagemap};

use crate::process::Program;
use crate::record::Record;

/// Copies the pages of the program that these records change, as far as that can be done now.
/// Whatever cannot be copied is copied, or refused, when it is changed.
pub(crate) fn make(program: &Program, records: &[Record]) {
    let (Ok(mappings), Ok(pagemap)) = (program.mappings(), Pagemap::of(program.id())) else {
        return;
    };
    let mut bytes = BTreeMap::new();
    for record in records.iter().filter(|record| record.changes()) {
        let last = record.address + record.new.len() as u64 - 1;
        let byte = record.old[record.old.len() - 1];
        bytes.entry(last / PAGE_SIZE_U64 * PAGE_SIZE_U64).or_insert((last, byte));
    }
    for mapping in mappings.iter().filter(|mapping| !mapping.writable && !mapping.shared) {
        let mut own = bytes.range(mapping.range.clone());
        let (Some((&first, _)), last) = (own.next(), own.next_back()) else { continue };
        let last = last.map_or(first, |(&page, _)| page);
        let Ok(pages) = pagemap.pages(first..last + PAGE_SIZE_U64) else { continue };
        for (&page, &(at, byte)) in bytes.range(first..=last) {
            let state = pages.get(((page - first) / PAGE_SIZE_U64) as usize);
            if state.is_some_and(|state| is_of_the_file(*state)) {
                let _ = program.write(at, &[byte]);
            }
        }
    }
}

/// Whether a page of a private mapping has not been copied yet.
fn is_of_the_file(page: Page) -> bool {
    page.file() || !page.present() && !page.swapped()
}
