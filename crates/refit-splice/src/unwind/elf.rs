//! A patch area as an ELF image (System V gABI, chapters 4 and 5). Addresses in the image are
//! offsets in the area.

use std::ops::Range;
use std::sync::Arc;

use super::bytes::align;
use super::tables::Encoded;
use crate::procedures::Procedures;
use crate::record::Head;

/// Bytes of the file header, of a program header, a section header and a symbol.
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;

/// Number of program headers.
const PROGRAM_HEADERS: usize = 3;

const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const READ: u32 = 4;
const RUN: u32 = 1;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const ALLOCATED: u64 = 2;
const EXECUTABLE: u64 = 4;

/// Index of the section of the code, and of that of symbol names.
const TEXT: u16 = 1;
const NAMES: u32 = 5;
/// Index of the section of section names, which is the last.
const SECTION_NAMES: u16 = 6;

/// A section header.
#[derive(Clone, Copy, Default)]
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    entry: u64,
}

/// Returns the first bytes of an area, and the bytes of its part for tables.
pub(super) fn encode(
    head: &Head,
    encoded: Encoded,
    symbols: &[(Range<u64>, Arc<Procedures>)],
) -> (Vec<u8>, Vec<u8>) {
    let Encoded { bytes: mut tables, descriptions, index } = encoded;
    align(&mut tables);
    let offset = |tables: &Vec<u8>| head.tables + tables.len() as u64;
    let (symbol_table, names) = symbol_table(head, symbols);
    let symbols_at = offset(&tables);
    tables.extend_from_slice(&symbol_table);
    let names_at = offset(&tables);
    tables.extend_from_slice(&names);
    let frames = |range: Range<u64>| Section {
        kind: SHT_PROGBITS,
        flags: ALLOCATED,
        offset: range.start - head.address,
        size: range.end - range.start,
        ..Section::default()
    };
    let text = Section {
        name: ".text",
        kind: SHT_PROGBITS,
        flags: ALLOCATED | EXECUTABLE,
        offset: head.code,
        size: head.data - head.code,
        ..Section::default()
    };
    let symtab = Section {
        name: ".symtab",
        kind: SHT_SYMTAB,
        offset: symbols_at,
        size: symbol_table.len() as u64,
        link: NAMES,
        // All symbols are local, and the table ends with them.
        info: (symbol_table.len() / SYMBOL) as u32,
        entry: SYMBOL as u64,
        ..Section::default()
    };
    let strings =
        |name, offset, size| Section { name, kind: SHT_STRTAB, offset, size, ..Section::default() };
    let mut sections = vec![
        Section::default(),
        text,
        Section { name: ".eh_frame", ..frames(descriptions) },
        Section { name: ".eh_frame_hdr", ..frames(index.clone()) },
        symtab,
        strings(".strtab", names_at, names.len() as u64),
    ];
    let section_names_at = offset(&tables);
    sections.push(strings(".shstrtab", section_names_at, 0));
    let (mut section_names, mut name_offsets) = (vec![0], Vec::new());
    for section in &sections {
        name_offsets.push(if section.name.is_empty() { 0 } else { section_names.len() as u32 });
        section_names.extend_from_slice(section.name.as_bytes());
        section_names.push(0);
    }
    if let Some(last) = sections.last_mut() {
        last.size = section_names.len() as u64;
    }
    tables.extend_from_slice(&section_names);
    align(&mut tables);
    let sections_at = offset(&tables);
    for (section, name) in sections.iter().zip(name_offsets) {
        section_header(&mut tables, section, name);
    }
    (header(head, sections_at, &index), tables)
}

/// Returns the file header and the program headers.
fn header(head: &Head, sections_at: u64, index: &Range<u64>) -> Vec<u8> {
    let mut to = Vec::with_capacity(FILE_HEADER + PROGRAM_HEADERS * PROGRAM_HEADER);
    // 64 bits, little endian, version 1, System V; then a shared object for x86-64.
    to.extend(b"\x7fELF\x02\x01\x01\x00\0\0\0\0\0\0\0\0");
    to.extend(3_u16.to_le_bytes());
    to.extend(62_u16.to_le_bytes());
    to.extend(1_u32.to_le_bytes());
    // No entry point.
    to.extend(0_u64.to_le_bytes());
    to.extend((FILE_HEADER as u64).to_le_bytes());
    to.extend(sections_at.to_le_bytes());
    to.extend(0_u32.to_le_bytes());
    for half in [FILE_HEADER, PROGRAM_HEADER, PROGRAM_HEADERS, SECTION_HEADER] {
        to.extend((half as u16).to_le_bytes());
    }
    to.extend((SECTION_NAMES + 1).to_le_bytes());
    to.extend(SECTION_NAMES.to_le_bytes());
    let index = index.start - head.address..index.end - head.address;
    let page = refit_sys::memory::PAGE_SIZE_U64;
    for (kind, access, range, alignment) in [
        (PT_LOAD, READ, 0..head.code, page),
        (PT_LOAD, READ | RUN, head.code..head.data, page),
        (PT_GNU_EH_FRAME, READ, index, 8),
    ] {
        to.extend(kind.to_le_bytes());
        to.extend(access.to_le_bytes());
        let size = range.end - range.start;
        for word in [range.start, range.start, range.start, size, size, alignment] {
            to.extend(word.to_le_bytes());
        }
    }
    to
}

fn section_header(to: &mut Vec<u8>, section: &Section, name: u32) {
    to.extend(name.to_le_bytes());
    to.extend(section.kind.to_le_bytes());
    let address = if section.flags & ALLOCATED == 0 { 0 } else { section.offset };
    for word in [section.flags, address, section.offset, section.size] {
        to.extend(word.to_le_bytes());
    }
    to.extend(section.link.to_le_bytes());
    to.extend(section.info.to_le_bytes());
    to.extend((u64::from(section.kind != 0) * 8).to_le_bytes());
    to.extend(section.entry.to_le_bytes());
}

/// Returns the table of symbols, and their names.
fn symbol_table(head: &Head, symbols: &[(Range<u64>, Arc<Procedures>)]) -> (Vec<u8>, Vec<u8>) {
    let (mut table, mut names) = (vec![0; SYMBOL], vec![0]);
    for (range, procedures) in symbols {
        table.extend((names.len() as u32).to_le_bytes());
        // A local function.
        table.extend([2, 0]);
        table.extend(TEXT.to_le_bytes());
        table.extend((range.start - head.address).to_le_bytes());
        table.extend((range.end - range.start).to_le_bytes());
        names.extend(procedures.name.bytes().filter(|&byte| byte != 0));
        names.extend(b" [refit]\0");
    }
    (table, names)
}
