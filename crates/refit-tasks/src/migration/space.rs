//! The memory of a group, at its origin: private memory becomes frames that others can map, piece by piece, when they ask.
//!
//! One memfd holds all frames of a group, and a page's offset in it is its address. So neighbours stay one mapping, an address says
//! where its frame is, and no table is needed: what is shared is what the kernel shows as such. A page that is shared is never private
//! again while anybody else may have it mapped.
//!
//! Copy-on-write is broken by that (Katz 2014, §5.7.3): what was private is copied into frames while all threads stand, so that nobody
//! writes to what is being copied.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use refit_sys::agent::{Agent, Call};
use refit_sys::foreign::Memory;
use refit_sys::maps::{self, Kind, Mapping as Mapped};
use refit_sys::pagemap::{Categories, Pagemap, Region, Scan};
use refit_sys::trace::{Held, find_syscall};
use rustix::fs::SeekFrom;

use super::calls::ours;
use super::wire::Mapping;
use crate::tree::Tree;

const PAGE: u64 = 4096;
/// How long all threads may take to stand.
const PATIENCE: Duration = Duration::from_secs(5);
/// How far below what is there a stack is taken to grow, at most.
const STACK: u64 = 64 << 20;
/// How much is copied at once.
const PIECE: usize = 256 << 10;

/// A group's memory.
pub(super) struct Space {
    pub(super) process: u32,
    pub(super) window: Range<u64>,
    pub(super) frames: Arc<File>,
    pub(super) agent: Arc<Agent>,
    /// The number by which the agent knows the frames.
    pub(super) number: u32,
    pub(super) tree: Arc<Tree>,
}

/// The name of the frames' memfd.
pub(super) const NAME: &std::ffi::CStr = c"refit-frames";

impl Space {
    /// What is at an address; private memory becomes frames.
    pub(super) fn at(&self, address: u64) -> io::Result<Mapping> {
        let mappings = maps::of(self.process)?;
        let Some((mapping, grows)) = find(&mappings, address) else { return Ok(Mapping::Nothing) };
        let inside = self.window.contains(&mapping.range.start);
        if inside || !(mapping.readable || mapping.writable || mapping.executable) {
            return Ok(Mapping::Nothing);
        }
        if frames(mapping) {
            let (range, access) = (mapping.range.clone(), access(mapping));
            return Ok(Mapping::Frames { range, access });
        }
        match mapping.kind() {
            Kind::KernelCode | Kind::KernelData | Kind::Other => return Ok(Mapping::Nothing),
            _ if mapping.shared => return Ok(self.file(mapping)),
            _ if of_file(mapping) && !mapping.writable && !self.written(&mapping.range)? => {
                return Ok(self.file(mapping));
            }
            _ => {}
        }
        let mut mapping = mapping.clone();
        if grows {
            mapping.range.start = stack_begin(&mappings, &mapping.range);
        }
        let (range, access) = (mapping.range.clone(), access(&mapping));
        self.share(mapping)?;
        Ok(Mapping::Frames { range, access })
    }

    fn file(&self, mapping: &Mapped) -> Mapping {
        let Range { start, end } = mapping.range;
        Mapping::File {
            range: start..end,
            access: access(mapping),
            offset: mapping.offset,
            shared: mapping.shared,
            path: format!("/proc/{}/map_files/{start:x}-{end:x}", self.process),
        }
    }

    /// Whether any page of a private mapping of a file is not the file's.
    fn written(&self, range: &Range<u64>) -> io::Result<bool> {
        let scan = Scan {
            any: Categories::PRESENT | Categories::SWAPPED,
            none: Categories::FILE,
            most: 1,
            ..Scan::default()
        };
        Ok(!scan_all(&Pagemap::of(self.process)?, range, &scan)?.is_empty())
    }

    /// Makes a private mapping frames.
    fn share(&self, mapping: Mapped) -> io::Result<()> {
        let (process, number) = (self.process, self.number);
        let (agent, frames) = (Arc::clone(&self.agent), Arc::clone(&self.frames));
        // What was there once, under the same addresses, is not there any more.
        refit_sys::memfd::punch(frames.as_fd(), mapping.range.clone())?;
        self.tree.still(self.process, PATIENCE, move || {
            fill(process, &mapping, &frames)?;
            let Range { start, end } = mapping.range;
            let kind = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let kind = u64::from(kind.cast_unsigned());
            let arguments =
                [start, end - start, access(&mapping).into(), kind, number.into(), start];
            let arguments = ours(libc::SYS_mmap, arguments);
            one(&agent, Call { number: libc::SYS_mmap, arguments })
        })?
    }

    /// Makes the frames in a range private memory again. Nobody else may have any of them mapped.
    pub(super) fn keep(&self, range: &Range<u64>) -> io::Result<()> {
        let process = self.process;
        let (agent, file) = (Arc::clone(&self.agent), Arc::clone(&self.frames));
        let range = range.clone();
        self.tree.still(self.process, PATIENCE, move || {
            for mapping in within(process, &range)? {
                let Call { number, arguments } = private(&mapping);
                one(&agent, Call { number, arguments })?;
                empty(process, &mapping, &file)?;
                refit_sys::memfd::punch(file.as_fd(), mapping.range)?;
            }
            Ok(())
        })?
    }

    /// Gives a child its own copy of all frames, while nobody writes to them. It stands, kept, in its first stop.
    pub(super) fn copy_for(&self, child: u32) -> io::Result<()> {
        let file = Arc::clone(&self.frames);
        self.tree.still(self.process, PATIENCE, move || {
            let mapped = within(child, &(0..u64::MAX))?;
            let memory = Memory::of(child)?;
            let instruction = find_syscall(&memory, &maps::of(child)?)
                .ok_or_else(|| io::Error::other("its code has no system call"))?;
            let mut held = Held::of(child);
            let done = mapped.into_iter().try_for_each(|mapping| {
                let Call { number, arguments } = private(&mapping);
                held.call(instruction, number, arguments)?;
                empty(child, &mapping, &file)
            });
            held.leave();
            done
        })?
    }

    /// Frames in a range are not needed any more, or are to be zeros.
    pub(super) fn drop_frames(&self, range: &Range<u64>) -> io::Result<()> {
        let whole = range.start / PAGE * PAGE..range.end.min(super::guest::TOP);
        if whole.is_empty() { Ok(()) } else { refit_sys::memfd::punch(self.frames.as_fd(), whole) }
    }

    /// The parts of a range that are frames.
    pub(super) fn frames_in(&self, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
        Ok(within(self.process, range)?.into_iter().map(|mapping| mapping.range).collect())
    }

    /// Has the agent make a call.
    pub(super) fn call(&self, number: i64, arguments: [u64; 6]) -> io::Result<i64> {
        let arguments = ours(number, arguments);
        let answers = self.agent.make(&[Call { number, arguments }], &mut [])?;
        Ok(answers.first().copied().unwrap_or(-i64::from(libc::EIO)))
    }
}

fn one(agent: &Agent, call: Call) -> io::Result<()> {
    match agent.make(&[call], &mut [])?.first() {
        Some(error @ ..0) => Err(io::Error::from_raw_os_error(-(*error as i32))),
        _ => Ok(()),
    }
}

/// The call that puts empty private memory in the place of a mapping.
fn private(mapping: &Mapped) -> Call {
    let Range { start, end } = mapping.range;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let kind = u64::from(kind.cast_unsigned());
    let arguments = [start, end - start, access(mapping).into(), kind, u64::MAX, 0];
    Call { number: libc::SYS_mmap, arguments: ours(libc::SYS_mmap, arguments) }
}

/// The mapping of an address, and whether it is a stack that would grow to it.
fn find(mappings: &[Mapped], address: u64) -> Option<(&Mapped, bool)> {
    let mapping = mappings.iter().find(|mapping| mapping.range.end > address)?;
    let stack = mapping.kind() == Kind::Stack;
    let near = mapping.range.start.saturating_sub(STACK) <= address;
    (mapping.range.contains(&address) || stack && near).then_some((mapping, stack))
}

/// Where a stack is to begin that cannot grow any more: as far down as it may, and a gap from what is below.
fn stack_begin(mappings: &[Mapped], stack: &Range<u64>) -> u64 {
    /// As the kernel keeps (`stack_guard_gap`).
    const GAP: u64 = 256 * PAGE;
    let below = mappings.iter().map(|mapping| mapping.range.end).filter(|&end| end <= stack.start);
    let free = below.max().unwrap_or(0) + GAP;
    free.max(stack.end.saturating_sub(8 << 20)).min(stack.start)
}

/// Whether pages that nobody has touched yet are those of a file.
fn of_file(mapping: &Mapped) -> bool {
    let (_, inode) = mapping.file;
    inode != 0
}

fn frames(mapping: &Mapped) -> bool {
    mapping.shared
        && mapping.kind() == Kind::Memfd
        && mapping.name.as_os_str() == "/memfd:refit-frames"
        && mapping.offset == mapping.range.start
}

/// The parts of a range of a process that are frames.
fn within(process: u32, range: &Range<u64>) -> io::Result<Vec<Mapped>> {
    let cut = |mut mapping: Mapped| {
        mapping.range.start = mapping.range.start.max(range.start);
        mapping.range.end = mapping.range.end.min(range.end);
        mapping
    };
    let all = maps::of(process)?.into_iter().filter(frames).map(cut);
    Ok(all.filter(|mapping| !mapping.range.is_empty()).collect())
}

/// What may be done with a mapping (`PROT_*`).
fn access(mapping: &Mapped) -> u32 {
    let one = |may: bool, bit: i32| if may { bit.cast_unsigned() } else { 0 };
    one(mapping.readable, libc::PROT_READ)
        | one(mapping.writable, libc::PROT_WRITE)
        | one(mapping.executable, libc::PROT_EXEC)
}

/// Copies what a process has in a private mapping into its frames.
fn fill(process: u32, mapping: &Mapped, frames: &File) -> io::Result<()> {
    let memory = Memory::of(process)?;
    // Of a file all that is there; else only what was touched.
    let pieces = if of_file(mapping) {
        vec![mapping.range.clone()]
    } else {
        let any = Categories::PRESENT | Categories::SWAPPED;
        let scan = Scan { any, none: Categories::ZERO, ..Scan::default() };
        let found = scan_all(&Pagemap::of(process)?, &mapping.range, &scan)?;
        found.into_iter().map(|region| region.range).collect()
    };
    let mut bytes = vec![0; PIECE];
    for piece in pieces {
        let mut at = piece.start;
        while at < piece.end {
            let length = (piece.end - at).min(PIECE as u64) as usize;
            let part = &mut bytes[..length];
            if memory.read(at, part).is_ok() {
                frames.write_all_at(part, at)?;
            } else {
                // Behind the end of a file: what is there.
                for page in (at..at + length as u64).step_by(PAGE as usize) {
                    let part = &mut bytes[..PAGE as usize];
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
fn empty(process: u32, mapping: &Mapped, frames: &File) -> io::Result<()> {
    let memory = Memory::of(process)?;
    let mut bytes = vec![0; PIECE];
    let mut at = mapping.range.start;
    while at < mapping.range.end {
        // `ENXIO`: nothing more.
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
