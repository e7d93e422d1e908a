//! Attributes that memory had before it became frames, and that can still be seen afterwards:
//! advice (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MADV_DONTDUMP`, `mlock`, `MAP_GROWSDOWN`), and the
//! file whose pages are visible again after memory is dropped.
//!
//! Only `smaps` reports advice, for which the kernel looks at every page. So it is read as long as
//! there may be any advice: at first, and again once a thread has given some.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use refit_sys::maps::{Kind, Mapping};
use refit_sys::smaps::{self, Flags, Usage};
use refit_sys::status::Status;

use crate::frames::is_frames;
use crate::page::PAGE_SIZE;

/// A former kind of memory.
#[derive(Clone, Debug)]
pub(super) enum Was {
    /// A private mapping of a file; an address plus this number is the offset.
    Of(Arc<File>, u64),
    /// Memory of which children get zeros.
    Wiped,
    /// A stack, or other memory that grows downwards.
    Stack,
}

/// The flags of `smaps` that advice sets: not copied, wiped, grows, not dumped, no huge pages, huge
/// pages, may be dropped, served by the program.
const ADVISED: [[u8; 2]; 10] =
    [*b"dc", *b"wf", *b"gd", *b"dd", *b"nh", *b"hg", *b"dp", *b"um", *b"uw", *b"ui"];

/// The former kinds of memory, by range.
#[derive(Debug)]
pub(super) struct Former {
    ranges: Mutex<BTreeMap<u64, (u64, Was)>>,
    /// Whether there may be advice.
    advised: AtomicBool,
}

impl Former {
    pub(super) fn new() -> Self {
        Self { ranges: Mutex::default(), advised: AtomicBool::new(true) }
    }

    /// Notes that advice was given.
    pub(super) fn note_advice(&self) {
        // Relaxed, as below: one thread decides about a group.
        self.advised.store(true, Ordering::Relaxed);
    }

    /// Returns the advice of the mapping at an address.
    pub(super) fn advice(&self, process: u32, start: u64) -> io::Result<Flags> {
        let locked = || {
            let status = Status::of(process);
            status.is_ok_and(|status| status.line("VmLck") != Some("0 kB"))
        };
        if !self.advised.load(Ordering::Relaxed) && !locked() {
            return Ok(Flags::default());
        }
        let all = smaps::of(process)?;
        let any = |flags: &Flags| ADVISED.iter().any(|flag| flags.has(*flag));
        // The kernel's own mappings have some, and so does the stack.
        let own = |mapping: &Mapping| mapping.name.as_os_str().as_encoded_bytes().starts_with(b"[");
        // Frames may be served by refit, which is nobody's advice.
        let advised =
            |one: &Usage| any(&one.flags) && !own(&one.mapping) && !is_frames(&one.mapping);
        let many = all.iter().any(advised);
        self.advised.store(many, Ordering::Relaxed);
        let one = all.into_iter().find(|one| one.mapping.range.contains(&start));
        Ok(one.map(|one| one.flags).unwrap_or_default())
    }

    /// Notes that a mapping becomes frames, with its file if it has one.
    pub(super) fn note(&self, mapping: &Mapping, file: Option<File>, advice: &Flags) {
        let Range { start, end } = mapping.range;
        let mut ranges = self.ranges();
        cut(&mut ranges, &mapping.range);
        if advice.has(*b"wf") {
            ranges.insert(start, (end, Was::Wiped));
        } else if advice.has(*b"gd") || mapping.kind() == Kind::Stack {
            ranges.insert(start, (end, Was::Stack));
        } else if let Some(file) = file {
            let place = mapping.offset.wrapping_sub(start);
            ranges.insert(start, (end, Was::Of(Arc::new(file), place)));
        }
    }

    /// Makes frames in a range show what the memory would show that was dropped: the file's pages,
    /// or zeros if there was no file.
    pub(super) fn show_again(&self, frames: &File, range: &Range<u64>) -> io::Result<()> {
        let mut zeros = range.start;
        let parts = within(&self.ranges(), range);
        for (part, was) in parts {
            if let Was::Of(file, place) = was {
                punch(frames, zeros..part.start)?;
                zeros = copy(&file, place, frames, &part)?;
            }
        }
        punch(frames, zeros..range.end)
    }

    /// Returns what an address was, and the range of that.
    pub(super) fn at(&self, address: u64) -> Option<(Range<u64>, Was)> {
        let ranges = self.ranges();
        let (&start, (end, was)) = ranges.range(..=address).next_back()?;
        (address < *end).then(|| (start..*end, was.clone()))
    }

    /// Returns the parts of a range of which children get zeros.
    pub(super) fn wiped(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let all = within(&self.ranges(), range).into_iter();
        all.filter(|(_, was)| matches!(was, Was::Wiped)).map(|(part, _)| part).collect()
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Was)>> {
        self.ranges.lock()
    }
}

fn punch(frames: &File, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() { Ok(()) } else { refit_sys::memfd::punch(frames.as_fd(), range) }
}

/// Copies a file into frames, over what is there, since another thread may look at the same time.
/// Returns where the copy ends.
fn copy(file: &File, place: u64, frames: &File, range: &Range<u64>) -> io::Result<u64> {
    let mut bytes = vec![0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let length = (range.end - at).min(bytes.len() as u64) as usize;
        let count = file.read_at(&mut bytes[..length], at.wrapping_add(place))?;
        if count == 0 {
            break;
        }
        frames.write_all_at(&bytes[..count], at)?;
        at += count as u64;
    }
    // Behind the end of the file its last page is zeros, and so is what follows.
    let page = at.next_multiple_of(PAGE_SIZE).min(range.end);
    frames.write_all_at(&vec![0; (page - at) as usize], at)?;
    Ok(page)
}

/// Returns the known parts of a range, in order.
fn within(ranges: &BTreeMap<u64, (u64, Was)>, range: &Range<u64>) -> Vec<(Range<u64>, Was)> {
    let cut = |(&start, (end, was)): (&u64, &(u64, Was))| {
        (start.max(range.start)..(*end).min(range.end), was.clone())
    };
    let all = ranges.range(..range.end).map(cut);
    all.filter(|(part, _)| !part.is_empty()).collect()
}

/// Forgets what is known of a range.
fn cut(ranges: &mut BTreeMap<u64, (u64, Was)>, range: &Range<u64>) {
    let touched: Vec<u64> = ranges
        .range(..range.end)
        .filter(|(_, (end, _))| *end > range.start)
        .map(|(&start, _)| start)
        .collect();
    for start in touched {
        let Some((end, was)) = ranges.remove(&start) else { continue };
        if start < range.start {
            ranges.insert(start, (range.start, was.clone()));
        }
        if end > range.end {
            ranges.insert(range.end, (end, was));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_range_replaces_what_was_known() {
        let mut ranges = BTreeMap::from([(0, (10, Was::Wiped)), (10, (30, Was::Wiped))]);
        cut(&mut ranges, &(5..20));
        let left: Vec<_> = ranges.iter().map(|(&start, &(end, _))| start..end).collect();
        assert_eq!(left, [0..5, 20..30]);
        let found: Vec<_> = within(&ranges, &(3..25)).into_iter().map(|(part, _)| part).collect();
        assert_eq!(found, [3..5, 20..25]);
    }
}
