//! The contents of private mappings, copied to frames and back.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use refit_sys::foreign::Memory;
use refit_sys::maps::Mapping;
use refit_sys::pagemap::{Categories, Pagemap, Region, Scan};
use rustix::fs::SeekFrom;

use crate::page::PAGE_SIZE;

/// The number of bytes that are copied at once.
const PIECE: usize = 256 << 10;

/// Returns the pages of a private mapping of a file that the process has instead of the file's.
pub(super) fn written(process: u32, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let any = Categories::PRESENT | Categories::SWAPPED;
    let scan = Scan { any, none: Categories::FILE, ..Scan::default() };
    let found = scan_all(&Pagemap::of(process)?, range, &scan)?;
    Ok(found.into_iter().map(|region| region.range).collect())
}

/// Returns whether untouched pages of a mapping are those of a file.
pub(super) fn is_of_file(mapping: &Mapping) -> bool {
    let (_, inode) = mapping.file;
    inode != 0
}

/// Returns the ranges that a process has in a private mapping: of a file, the whole; otherwise,
/// what was touched.
fn pieces(process: u32, mapping: &Mapping) -> io::Result<Vec<Range<u64>>> {
    if is_of_file(mapping) {
        return Ok(vec![mapping.range.clone()]);
    }
    let any = Categories::PRESENT | Categories::SWAPPED;
    let scan = Scan { any, none: Categories::ZERO, ..Scan::default() };
    let found = scan_all(&Pagemap::of(process)?, &mapping.range, &scan)?;
    Ok(found.into_iter().map(|region| region.range).collect())
}

/// Returns the number of their bytes.
pub(super) fn resident_bytes(process: u32, mapping: &Mapping) -> io::Result<u64> {
    Ok(pieces(process, mapping)?.into_iter().map(|piece| piece.end - piece.start).sum())
}

/// Copies what a process has in a private mapping into its frames.
pub(super) fn fill(process: u32, mapping: &Mapping, frames: &File) -> io::Result<()> {
    let memory = Memory::of(process)?;
    let mut bytes = vec![0; PIECE];
    for piece in pieces(process, mapping)? {
        let mut at = piece.start;
        while at < piece.end {
            let length = (piece.end - at).min(PIECE as u64) as usize;
            let part = &mut bytes[..length];
            if memory.read(at, part).is_ok() {
                frames.write_all_at(part, at)?;
            } else {
                // Behind the end of a file: the pages that exist.
                for page in (at..at + length as u64).step_by(PAGE_SIZE as usize) {
                    let part = &mut bytes[..PAGE_SIZE as usize];
                    if memory.read(page, part).is_ok() {
                        frames.write_all_at(part, page)?;
                    }
                }
            }
            at += length as u64;
        }
    }
    Ok(())
}

/// Copies frames into the private memory that a process has in their place.
pub(super) fn empty(process: u32, mapping: &Mapping, frames: &File) -> io::Result<()> {
    let memory = Memory::of(process)?;
    let mut bytes = vec![0; PIECE];
    let mut at = mapping.range.start;
    while at < mapping.range.end {
        // `ENXIO`: no data behind this.
        let Ok(begin) = rustix::fs::seek(frames, SeekFrom::Data(at)) else { break };
        if begin >= mapping.range.end {
            break;
        }
        let end = rustix::fs::seek(frames, SeekFrom::Hole(begin))?.min(mapping.range.end);
        at = begin;
        while at < end {
            let part = &mut bytes[..(end - at).min(PIECE as u64) as usize];
            frames.read_exact_at(part, at)?;
            memory.write(at, part)?;
            at += part.len() as u64;
        }
    }
    Ok(())
}

fn scan_all(pagemap: &Pagemap, range: &Range<u64>, scan: &Scan) -> io::Result<Vec<Region>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        at = pagemap.scan(at..range.end, scan, &mut found)?;
        if scan.most > 0 && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}
