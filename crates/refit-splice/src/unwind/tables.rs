//! Frame descriptions (`.eh_frame`) of generated code, with their index (`.eh_frame_hdr`) and
//! language-specific data (LSB Core 5.0 §10.6).

use std::collections::BTreeMap;
use std::ops::Range;

use refit_analysis::image::Procedure;
use refit_analysis::image::procedure::Personality;

use super::bytes::{align, distance, encoding, unsigned};
use super::language;
use super::rules::{Piece, Rules, call_frame, change};
use crate::libunwind::Index;
use crate::listing::{Frame, Values};

/// Bytes of an index before its entries, and of an entry.
const INDEX_HEADER: usize = 12;
const INDEX_ENTRY: usize = 8;

/// Frame descriptions of the code of one patch area.
#[derive(Debug, Default)]
pub(super) struct Tables {
    described: Vec<Described>,
    language_data: Vec<u8>,
}

/// A description of a range of code.
#[derive(Debug)]
struct Described {
    range: Range<u64>,
    common: Common,
    /// Offset of its data in `language_data`.
    language_data: Option<usize>,
    /// Its call frame instructions.
    instructions: Vec<u8>,
}

/// The properties of descriptions that refer to the same common information entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Common {
    /// Encoding and address of the personality routine.
    personality: Option<(u8, u64)>,
    signal: bool,
}

/// Encoded tables, and the addresses of their parts.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptions: Range<u64>,
    pub(super) index: Range<u64>,
}

impl Encoded {
    /// Returns the index, as unwinders search it.
    pub(super) fn index(&self) -> Index {
        let entries = self.index.start + INDEX_HEADER as u64;
        let count = (self.index.end - entries) / INDEX_ENTRY as u64;
        Index { address: self.index.start, entries, count }
    }
}

impl Tables {
    /// Adds generated code up to `end`, whose frames are given; code of `procedures` stands behind
    /// it. Code of other procedures remains undescribed, as it is in the program.
    pub(super) fn add(&mut self, frames: &[(u64, Frame)], end: u64, procedures: &[Procedure]) {
        let ends = frames.iter().skip(1).map(|&(begin, _)| begin).chain([end]);
        let mut run: Option<(&Procedure, Vec<Piece>)> = None;
        for (&(begin, frame), end) in
            frames.iter().zip(ends).filter(|((begin, _), end)| begin < end)
        {
            let range = begin..end;
            let found = match (frame, &run) {
                (Frame::Of(original, values), _) => described(procedures, original, &values)
                    .map(|(procedure, rules)| (procedure, Some(original), rules)),
                (Frame::After { last, next }, _) => [next, last].into_iter().find_map(|original| {
                    let (procedure, rules) = described(procedures, original, &Values::UNMOVED)?;
                    Some((procedure, Some(original), rules))
                }),
                (Frame::Called, Some((procedure, _))) => {
                    Some((*procedure, None, Rules::at_entry()))
                }
                (Frame::Called, None) => None,
            };
            let next = found
                .map(|(procedure, original, rules)| (procedure, Piece { range, original, rules }));
            match (&mut run, next) {
                (Some((procedure, pieces)), Some((other, piece)))
                    if std::ptr::eq(*procedure, other) =>
                {
                    pieces.push(piece);
                }
                (_, next) => {
                    let next = next.map(|(procedure, piece)| (procedure, vec![piece]));
                    self.describe(std::mem::replace(&mut run, next));
                }
            }
        }
        self.describe(run);
    }

    fn describe(&mut self, run: Option<(&Procedure, Vec<Piece>)>) {
        let Some((procedure, pieces)) = run else { return };
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return };
        let range = first.range.start..last.range.end;
        let mut instructions = Vec::new();
        let (mut at, mut rules) = (range.start, &Rules::at_entry());
        for piece in pieces.iter() {
            let before = instructions.len();
            change(&mut instructions, rules, &piece.rules);
            if instructions.len() > before {
                let changes = instructions.split_off(before);
                advance(&mut instructions, piece.range.start - at);
                instructions.extend(changes);
                at = piece.range.start;
            }
            rules = &piece.rules;
        }
        let language_data = procedure.language_data.as_ref().map(|data| {
            let at = self.language_data.len();
            self.language_data.extend(language::encode(data, range.start, &pieces));
            at
        });
        let personality = procedure.personality.map(|personality| match personality {
            Personality::At(address) => (encoding::ABSOLUTE, address),
            Personality::Stored(address) => (encoding::INDIRECT, address),
        });
        let common = Common { personality, signal: procedure.signal };
        self.described.push(Described { range, common, language_data, instructions });
    }

    /// Adds other descriptions.
    pub(super) fn append(&mut self, mut other: Self) {
        let before = self.language_data.len();
        self.language_data.append(&mut other.language_data);
        self.described.extend(other.described.into_iter().map(|one| Described {
            language_data: one.language_data.map(|offset| before + offset),
            ..one
        }));
    }

    /// Encodes the tables for the address `at`, the index first; `None` if they are too far from
    /// the code.
    pub(super) fn encode(&self, at: u64) -> Option<Encoded> {
        let mut bytes = vec![0; INDEX_HEADER + self.described.len() * INDEX_ENTRY];
        let index = at..at + bytes.len() as u64;
        align(&mut bytes);
        let data = at + bytes.len() as u64;
        bytes.extend_from_slice(&self.language_data);
        align(&mut bytes);
        let begin = at + bytes.len() as u64;
        let mut commons = BTreeMap::new();
        let mut places = Vec::with_capacity(self.described.len());
        for one in &self.described {
            let common = *commons.entry(one.common).or_insert_with(|| {
                let place = bytes.len();
                common_entry(&mut bytes, one.common);
                place
            });
            places.push((one.range.start, at + bytes.len() as u64));
            let data = one.language_data.map_or(0, |offset| data + offset as u64);
            description(&mut bytes, one, common, (at, data))?;
        }
        // The terminator of the section.
        bytes.extend([0; 4]);
        let descriptions = begin..at + bytes.len() as u64;
        let filled = encode_index(at, begin, places)?;
        bytes[..filled.len()].copy_from_slice(&filled);
        Some(Encoded { bytes, descriptions, index })
    }
}

/// Returns the index, which is at the address `at`; `descriptions` is the address of the section,
/// and `places` are those of each piece of code and its description.
fn encode_index(at: u64, descriptions: u64, mut places: Vec<(u64, u64)>) -> Option<Vec<u8>> {
    places.sort_unstable();
    let (relative, to_index) = (encoding::RELATIVE, encoding::RELATIVE_TO_INDEX);
    let mut bytes = vec![1, relative, encoding::UNSIGNED_4, to_index];
    distance(&mut bytes, at + 4, descriptions)?;
    bytes.extend((places.len() as u32).to_le_bytes());
    for (code, description) in places {
        distance(&mut bytes, at, code)?;
        distance(&mut bytes, at, description)?;
    }
    Some(bytes)
}

/// Returns the procedure of an instruction, and the rules of code that stands for it.
fn described<'p>(
    procedures: &'p [Procedure],
    original: u64,
    values: &Values,
) -> Option<(&'p Procedure, Rules)> {
    let procedure = procedures.iter().find(|one| one.addresses.contains(&original))?;
    let rules = Rules::new(procedure.row(original)?, original, values)?;
    Some((procedure, rules))
}

fn advance(to: &mut Vec<u8>, by: u64) {
    match by {
        0 => {}
        1..0x40 => to.push(call_frame::ADVANCE | by as u8),
        0x40..0x100 => to.extend([call_frame::ADVANCE_1, by as u8]),
        0x100..0x1_0000 => {
            to.push(call_frame::ADVANCE_2);
            to.extend((by as u16).to_le_bytes());
        }
        _ => {
            to.push(call_frame::ADVANCE_4);
            to.extend((by as u32).to_le_bytes());
        }
    }
}

/// Appends a common information entry.
fn common_entry(to: &mut Vec<u8>, common: Common) {
    let begin = begin_entry(to);
    to.extend(0_u32.to_le_bytes());
    to.push(1);
    to.push(b'z');
    if common.personality.is_some() {
        to.extend(b"PL");
    }
    to.push(b'R');
    if common.signal {
        to.push(b'S');
    }
    // After the augmentation: code alignment 1, data alignment -1, the return address's number.
    to.extend([0, 1, 0x7f, 16]);
    match common.personality {
        Some((how, address)) => {
            unsigned(to, 11);
            to.push(how);
            to.extend(address.to_le_bytes());
            to.extend([encoding::ABSOLUTE, encoding::RELATIVE]);
        }
        None => to.extend([1, encoding::RELATIVE]),
    }
    to.extend([call_frame::DEF_CFA, 7, 8, call_frame::OFFSET | 16, 8]);
    end_entry(to, begin);
}

/// Appends a frame description; `at` is the address of the bytes, `data` that of its
/// language-specific data.
fn description(
    to: &mut Vec<u8>,
    one: &Described,
    common: usize,
    (at, data): (u64, u64),
) -> Option<()> {
    let begin = begin_entry(to);
    to.extend(((to.len() - common) as u32).to_le_bytes());
    distance(to, at + to.len() as u64, one.range.start)?;
    to.extend(((one.range.end - one.range.start) as u32).to_le_bytes());
    match one.common.personality {
        Some(_) => {
            to.push(8);
            to.extend(data.to_le_bytes());
        }
        None => to.push(0),
    }
    to.extend_from_slice(&one.instructions);
    end_entry(to, begin);
    Some(())
}

/// Begins an entry with its length; returns the place of the length.
fn begin_entry(to: &mut Vec<u8>) -> usize {
    to.extend([0; 4]);
    to.len() - 4
}

/// Pads an entry with instructions that do nothing (`DW_CFA_nop` is 0), and sets its length.
fn end_entry(to: &mut Vec<u8>, begin: usize) {
    align(to);
    let length = (to.len() - begin - 4) as u32;
    to[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
}
