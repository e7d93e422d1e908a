//! Shows patch areas to debuggers, as loaded objects.
//!
//! The dynamic loader keeps a list of loaded objects for debuggers: `struct r_debug`, to which
//! `DT_DEBUG` of the program leads (`<link.h>`). From version 2.35 on, glibc has one such structure
//! for each namespace of `dlmopen`, each with a pointer to the next. glibc only appends to this
//! chain, and looks up nothing in it. An area is the only object of a namespace of its own, right
//! after the first one. Debuggers open the file by its name in the list: that of its mapping in the
//! program, which only root can open, or else a descriptor of the process that has made the area.
//! Without that process the area then has no symbols.
//!
//! The structures are in a page of the area that is private to each process, since glibc may write
//! to them ([`crate::area`]).
//!
//! Programs that load nothing, and those with other loaders, have no such chain.

use std::ops::Range;

use memchr::memmem;
use refit_sys::auxv;
use refit_sys::memory::PAGE_SIZE_U64;

use crate::libunwind;
use crate::process::{Program, Refusal, Still, general};
use crate::record::Head;

/// Offset of `struct r_debug_extended` in the data of an area, followed by a `struct link_map`.
pub(crate) const AT: u64 = 3648;
/// Offset of the name of the file, which is at the end of the page.
const NAME_AT: u64 = 4016;
const _: () = assert!(AT + R_DEBUG + LINK_MAP <= libunwind::AT && libunwind::END <= NAME_AT);
/// Most bytes of the name, with the zero at its end.
const MOST_NAME: usize = (PAGE_SIZE_U64 - NAME_AT) as usize;
/// Offsets in `struct r_debug_extended`, and its length.
const R_MAP: u64 = 8;
const R_BRK: u64 = 16;
const R_NEXT: u64 = 40;
const R_DEBUG: u64 = 48;
/// Length of the public part of `struct link_map`.
const LINK_MAP: u64 = 40;

/// Longest chain that is followed.
const LONGEST: usize = 64;
/// Most bytes of the loader that are searched for the name of its version.
const HEAD: u64 = 1 << 16;
/// The name of the interface with chains.
const INTERFACE: &[u8] = b"\0GLIBC_2.35\0";

/// Entries of program headers and of the dynamic section (System V gABI, chapter 5).
const PROGRAM_HEADER: u64 = 56;
const PT_DYNAMIC: u64 = 2;
const PT_PHDR: u64 = 6;
const DT_DEBUG: u64 = 21;
/// Most bytes of a dynamic section that are read.
const DYNAMIC: u64 = 1 << 14;

/// Writes the object of an area; `file` is the path of the area's file.
pub(crate) fn describe(program: &Program, head: &Head, file: &str) -> std::io::Result<()> {
    let name = head.address + head.data + NAME_AT;
    let bytes: Vec<u8> = file.bytes().chain([0]).collect();
    if bytes.len() > MOST_NAME {
        return Err(std::io::ErrorKind::InvalidFilename.into());
    }
    program.write(name, &bytes)?;
    // The object's load bias, name, dynamic section (none), and neighbours (none).
    program.write(link_map(head), &[head.address, name, 0, 0, 0].map(u64::to_le_bytes).concat())
}

/// Returns the address of an area's `struct link_map`.
pub(crate) fn link_map(head: &Head) -> u64 {
    own(head) + R_DEBUG
}

/// Adds an area to the list of a stopped program; `first` is its first namespace.
pub(crate) fn show(still: &Still<'_>, first: u64, head: &Head) -> Option<()> {
    let program = still.program();
    let (own, map) = (own(head), link_map(head));
    let word = |at: u64| program.word(at).ok();
    // Version 2; the object; the breakpoint that the loader reports changes by; a consistent state
    // (0); the loader's own base; the next namespace.
    let words = [2, map, word(first + R_BRK)?, 0, word(first + 32)?, next(program, first)?];
    program.write(own, &words.map(u64::to_le_bytes).concat()).ok()?;
    program.write(first + R_NEXT, &own.to_le_bytes()).ok()?;
    program.write(first, &2_u32.to_le_bytes()).ok()
}

/// Removes an area from the list. Returns false if that is not possible now: a thread is about to
/// append to the chain, after this area.
pub(crate) fn hide(still: &Still<'_>, head: &Head) -> Result<bool, Refusal> {
    let program = still.program();
    let own = own(head);
    if program.word(own + R_MAP).is_ok_and(|map| map == 0) {
        return Ok(true);
    }
    let Some(first) = first(program) else { return Ok(true) };
    let chain = std::iter::successors(Some(first), |&one| next(program, one).filter(|&at| at != 0));
    let mut chain = chain.take(LONGEST);
    let Some(before) = chain.find(|&one| next(program, one) == Some(own)) else { return Ok(true) };
    if is_followed(still, own)? {
        return Ok(false);
    }
    let failed =
        |source| Refusal::System { id: program.id(), what: "change its list of objects", source };
    let after = program.word(own + R_NEXT).map_err(failed)?;
    program.write(before + R_NEXT, &after.to_le_bytes()).map_err(failed)?;
    if next(program, first) == Some(0) {
        program.write(first, &1_u32.to_le_bytes()).map_err(failed)?;
    }
    Ok(true)
}

/// Whether a thread may have followed the chain up to this namespace. The loader does so in a loop
/// without calls, which has the address of the namespace, or of its last word, at hand.
fn is_followed(still: &Still<'_>, own: u64) -> Result<bool, Refusal> {
    /// Bytes of the stack in which the loop may keep a register.
    const NEAR: usize = 512;
    let loader = loader(still.program())?;
    if still.asleep().any(|(_, waits)| loader.contains(&waits.counter)) {
        return Ok(true);
    }
    for thread in still.threads().collect::<Vec<_>>() {
        let registers = still.registers(thread)?;
        if !loader.contains(&registers.rip) {
            continue;
        }
        let mut stack = [0; NEAR];
        // Nothing is kept where nothing is mapped.
        let _ = still.program().read(registers.rsp, &mut stack);
        let kept = stack.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let registers = general(&registers).into_iter();
        if registers.chain(kept).any(|word| word == own || word == own + R_NEXT) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn own(head: &Head) -> u64 {
    head.address + head.data + AT
}

/// Returns the namespace after this one; 0 after the last.
fn next(program: &Program, debug: u64) -> Option<u64> {
    let version = program.word(debug).ok()? as u32;
    // glibc sets the version of the first namespace to 2 once there is another one.
    if version < 2 { Some(0) } else { program.word(debug + R_NEXT).ok() }
}

/// Returns the address of the first namespace; `None` if it is unknown, or has no successors.
pub(crate) fn first(program: &Program) -> Option<u64> {
    let vector = auxv::of(program.face()).ok()?;
    let value = |kind: u64| vector.iter().find(|(one, _)| *one == kind).map(|&(_, value)| value);
    let (headers, count) = (value(libc::AT_PHDR)?, value(libc::AT_PHNUM)?);
    let loader = value(libc::AT_BASE).filter(|&base| base != 0)?;
    let mut code = vec![0; HEAD.min(length_from(program, loader)?) as usize];
    program.read(loader, &mut code).ok()?;
    memmem::find(&code, INTERFACE)?;
    let header = |number: u64| {
        let at = headers + number * PROGRAM_HEADER;
        let word = |offset: u64| program.word(at + offset).ok();
        // Type, address, size in memory.
        Some((word(0)? & 0xffff_ffff, word(16)?, word(40)?))
    };
    let all: Vec<_> = (0..count.min(64)).filter_map(header).collect();
    let of = |kind: u64| all.iter().find(|(one, ..)| *one == kind).copied();
    let bias = headers.wrapping_sub(of(PT_PHDR)?.1);
    let (_, dynamic, size) = of(PT_DYNAMIC)?;
    let dynamic = dynamic.wrapping_add(bias);
    let mut entries = (dynamic..dynamic.checked_add(size.min(DYNAMIC))?).step_by(16);
    let debug = entries.find(|&at| program.word(at).is_ok_and(|tag| tag == DT_DEBUG))?;
    program.word(debug + 8).ok().filter(|&address| address != 0)
}

/// Returns the length of the mapping that begins at an address.
fn length_from(program: &Program, address: u64) -> Option<u64> {
    let mappings = program.mappings().ok()?;
    let found = mappings.iter().find(|mapping| mapping.range.start == address)?;
    Some(found.range.end - found.range.start)
}

/// Returns the addresses of the loader's code.
fn loader(program: &Program) -> Result<Range<u64>, Refusal> {
    let vector = auxv::of(program.face()).unwrap_or_default();
    let base = vector.iter().find(|(kind, _)| *kind == libc::AT_BASE).map_or(0, |&(_, base)| base);
    let mappings = program.mappings()?;
    let Some(first) = mappings.iter().find(|mapping| mapping.range.start == base) else {
        return Ok(0..0);
    };
    let own = mappings.iter().filter(|one| one.file == first.file && one.executable);
    Ok(own.map(|one| one.range.clone()).next().unwrap_or(0..0))
}
