//! Describes generated code to unwinders and debuggers: a patch area is an ELF image, with frame
//! descriptions for every instruction in it, and a symbol for each piece of code.
//!
//! Generated code calls nothing: a displaced call pushes the return address that it always pushed.
//! So it appears in a backtrace only as the innermost frame, of a thread that a signal or a
//! debugger has stopped there. The descriptions are the original ones (`refit-analysis` reads
//! them), with two corrections for each instruction ([`Frame`](crate::listing::Frame)): how far the
//! code has moved the stack pointer, and where it keeps the program's registers meanwhile.
//!
//! Landing pads stay where they are. The copy of a call site leads to the landing pad of the
//! original, so exceptions thrown by faults (`-fnon-call-exceptions`) and cancellation are handled
//! as in the original.
//!
//! `rules` computes the unwinding rules of an instruction, `tables` encodes them, `language`
//! encodes the language-specific data, `elf` makes the image.

mod bytes;
mod elf;
mod language;
mod rules;
mod tables;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::arrange::Function;
use crate::encode::EncodedCode;
use crate::jump::{JUMP, Way};
use crate::libunwind::{self, DynamicList, Index};
use crate::listing::{Frame, Values};
use crate::procedures::Procedures;
use crate::ready::Ready;
use crate::record::{Head, Record};
use crate::site::Site;
use crate::snippet::Step;
use bytes::align;
use tables::Tables;

/// The description of all code in a patch area.
#[derive(Debug, Default)]
pub(crate) struct Unwinding {
    tables: Tables,
    symbols: Vec<(Range<u64>, Arc<Procedures>)>,
    /// Addresses of the long jumps that lead to the code.
    springboards: Vec<u64>,
}

/// An encoded description.
#[derive(Debug)]
pub(crate) struct Image {
    /// The first bytes of the area.
    pub(crate) header: Vec<u8>,
    /// The bytes of the part for tables, which begin with the index of frame descriptions.
    pub(crate) tables: Vec<u8>,
    pub(crate) index: Index,
    /// The address and the number of the entries of springboards in libunwind's list.
    pub(crate) springboards: (u64, usize),
}

impl Unwinding {
    /// Adds generated code, and the long jumps that lead to it. Where these are, the program has
    /// no code that runs, so what it says of frames there is nothing, or something else.
    pub(crate) fn add(&mut self, code: &EncodedCode) {
        let procedures = &code.procedures;
        let end = code.at + code.code.len() as u64;
        self.tables.add(&code.frames, end, &procedures.parts);
        for (at, site) in code.records.iter().filter_map(Record::springboard) {
            let frames = [(at, Frame::Of(site, Values::UNMOVED))];
            self.tables.add(&frames, at + JUMP as u64, &procedures.parts);
            self.springboards.push(at);
        }
        self.symbols.push((code.at..end, Arc::clone(procedures)));
    }

    /// Adds the description of other code.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.tables.append(other.tables);
        self.symbols.append(&mut other.symbols);
        self.springboards.append(&mut other.springboards);
    }

    /// Encodes the description for an area, and for this list of the program's libunwind; `None` if
    /// it does not fit.
    pub(crate) fn encode(&self, head: &Head, list: Option<&DynamicList>) -> Option<Image> {
        let at = head.address + head.tables;
        let encoded = self.tables.encode(at)?;
        let index = encoded.index();
        let (header, mut tables) = elf::encode(head, encoded, &self.symbols);
        align(&mut tables);
        let springboards = (at + tables.len() as u64, self.springboards.len());
        if let Some(list) = list {
            tables.extend(list.springboards(head, index, springboards.0, &self.springboards));
        }
        let fits = tables.len() as u64 <= head.code - head.tables;
        fits.then_some(Image { header, tables, index, springboards })
    }
}

/// Returns an upper bound of the bytes that describe a unit.
pub(crate) fn most_bytes(ready: &Ready) -> u64 {
    // A register that is saved and restored takes at most 48 bytes. The steps move the stack
    // pointer some more times.
    let snippet = |site: &Site| {
        48 * site.most_moved() + site.actions.iter().map(Step::most_described).sum::<usize>()
    };
    let bytes = match ready {
        // Rules change at some displaced instructions, and within calls.
        Ready::Place(place) => {
            let procedures = &place.site.procedures;
            let end = place.site.address + place.displaced.length() as u64;
            let within = |begin: u64| place.site.address < begin && begin < end;
            let rows = procedures.parts.iter().flat_map(|part| &part.rows);
            let changes = rows.filter(|(begin, _)| within(*begin)).count();
            let code = snippet(&place.site) + 64 * (5 + changes);
            code + fixed_bytes(procedures, is_hop(&place.way))
        }
        Ready::Copied(copied) => {
            let procedures = &copied.body.procedures;
            let sites: usize = copied.sites.iter().map(snippet).sum();
            let hops = copied.layout.gates.values().map(is_hop).sum();
            sites + copy_bytes(procedures, copied.members.len()) + fixed_bytes(procedures, hops)
        }
        Ready::Arranged(arranged) => {
            let mut members = vec![0; arranged.functions.len()];
            for block in &arranged.blocks {
                members[block.function] += block.members.len() + 1;
            }
            let bytes = |(function, members): (&Function, usize)| {
                let procedures = &function.body.procedures;
                copy_bytes(procedures, members) + fixed_bytes(procedures, 0)
            };
            let tables = fixed_bytes(&Procedures::default(), 0);
            tables + arranged.functions.iter().zip(members).map(bytes).sum::<usize>()
        }
        // The same rules may change many times: the instructions are in another order, and some
        // are there more than once.
        Ready::Versions(versions) => {
            let procedures = &versions.of.body.procedures;
            copy_bytes(procedures, 4 * versions.instructions()) + fixed_bytes(procedures, 0)
        }
    };
    bytes as u64
}

fn is_hop(way: &Way) -> usize {
    usize::from(matches!(way, Way::Hop(_)))
}

/// Returns an upper bound of the bytes that describe so many copied instructions of a function.
fn copy_bytes(procedures: &Procedures, members: usize) -> usize {
    let rows: usize = procedures.parts.iter().map(|part| part.rows.len()).sum();
    24 * members + 256 * rows
}

/// Returns an upper bound of the bytes for a function, however much of it is copied, with so many
/// springboards.
fn fixed_bytes(procedures: &Procedures, hops: usize) -> usize {
    let data = procedures.parts.iter().filter_map(|part| part.language_data.as_ref());
    let data =
        data.map(|data| 64 + data.actions.len() + data.types.len() * 8 + data.specifications.len());
    let data: usize = data.sum();
    256 + 2 * procedures.name.len() + data + hops * (16 * 64 + libunwind::ENTRY + data)
}
