//! What memory was before it became frames, where that can still be seen afterwards: advice that it was given
//! (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MADV_DONTDUMP`, `mlock`, `MAP_GROWSDOWN`), and the file whose pages are to be seen again where it is dropped.
//!
//! Advice is told by `smaps` only, for which the kernel looks at every page. So that is read as long as there may be any: in the beginning,
//! and again once somebody has given some.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use refit_sys::maps::{Kind, Mapping};
use refit_sys::smaps::{self, Flags, Usage};

use crate::origin::address_space::frames;

/// What a range was.
#[derive(Clone, Debug)]
pub(super) enum Was {
    /// A private mapping of a file, in which an address and this make the place.
    Of(Arc<File>, u64),
    /// What children get zeros for.
    Wiped,
    /// A stack, or other memory that grows downwards.
    Stack,
}

/// What the kernel tells of advice in `smaps`: not copied, wiped, grows, not dumped, no huge pages, dropped at will, served by the program.
const ADVISED: [[u8; 2]; 10] =
    [*b"dc", *b"wf", *b"gd", *b"dd", *b"nh", *b"hg", *b"dp", *b"um", *b"uw", *b"ui"];

/// It, by range.
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

    /// Advice was given.
    pub(super) fn is_advised(&self) {
        // Relaxed, as below: one thread decides about a group.
        self.advised.store(true, Ordering::Relaxed);
    }

    /// What the mapping that begins at an address was advised.
    pub(super) fn advice(&self, process: u32, start: u64) -> io::Result<Flags> {
        let locked = || {
            let status = std::fs::read_to_string(format!("/proc/{process}/status"));
            status.is_ok_and(|text| !text.contains("VmLck:\t       0 kB"))
        };
        if !self.advised.load(Ordering::Relaxed) && !locked() {
            return Ok(Flags::default());
        }
        let all = smaps::of(process)?;
        let any = |flags: &Flags| ADVISED.iter().any(|flag| flags.has(*flag));
        // What the kernel maps for itself has some, as has the stack.
        let own = |mapping: &Mapping| mapping.name.as_os_str().as_encoded_bytes().starts_with(b"[");
        // Frames may be served by refit, which is nobody's advice.
        let advised = |one: &Usage| any(&one.flags) && !own(&one.mapping) && !frames(&one.mapping);
        let many = all.iter().any(advised);
        self.advised.store(many, Ordering::Relaxed);
        let one = all.into_iter().find(|one| one.mapping.range.contains(&start));
        Ok(one.map(|one| one.flags).unwrap_or_default())
    }

    /// A mapping becomes frames, with this file in it if there is one.
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

    /// Frames in a range are dropped: what is to be seen there is put into them, zeros where there was no file.
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

    /// What is known of an address, and the range of it.
    pub(super) fn at(&self, address: u64) -> Option<(Range<u64>, Was)> {
        let ranges = self.ranges();
        let (&start, (end, was)) = ranges.range(..=address).next_back()?;
        (address < *end).then(|| (start..*end, was.clone()))
    }

    /// The parts of a range that children get zeros for.
    pub(super) fn wiped(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let all = within(&self.ranges(), range).into_iter();
        all.filter(|(_, was)| matches!(was, Was::Wiped)).map(|(part, _)| part).collect()
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Was)>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn punch(frames: &File, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() { Ok(()) } else { refit_sys::memfd::punch(frames.as_fd(), range) }
}

/// Copies a file into frames, over what is there, since somebody may look at the same time; up to where.
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
    let page = at.next_multiple_of(4096).min(range.end);
    frames.write_all_at(&vec![0; (page - at) as usize], at)?;
    Ok(page)
}

/// The parts of a range of which something is known, in order.
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
    fn what_is_anew_is_not_what_was_before() {
        let mut ranges = BTreeMap::from([(0, (10, Was::Wiped)), (10, (30, Was::Wiped))]);
        cut(&mut ranges, &(5..20));
        let left: Vec<_> = ranges.iter().map(|(&start, &(end, _))| start..end).collect();
        assert_eq!(left, [0..5, 20..30]);
        let found: Vec<_> = within(&ranges, &(3..25)).into_iter().map(|(part, _)| part).collect();
        assert_eq!(found, [3..5, 20..25]);
    }
}
