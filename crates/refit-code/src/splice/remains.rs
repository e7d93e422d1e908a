//! Patch areas that are in a program, and taking out what they stand for: by who put them there, or by somebody later, if
//! that one was killed.
//!
//! All that is needed stands in the area itself. A process that was forked from the program has the changed code too, and the area:
//! it is cleaned with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::time::Duration;

use refit_sys::maps::Mapping;

use super::area::{Head, NAME, PAGE, Record};
use super::patches::{self, Now};
use super::{Why, frames, install};
use crate::process::{Call, Program, Refusal, Still};

const PATIENCE: Duration = Duration::from_secs(10);
/// How often handlers are waited for, and how long each time.
const HANDLERS: usize = 50;
const HANDLER: Duration = Duration::from_millis(5);
/// Where addresses of programs end.
const USER: u64 = 1 << 47;
/// Instructions until a thread has left a snippet: more than any has.
const STEPS: usize = 4096;

/// A patch area in a program.
#[derive(Debug)]
pub struct Remains {
    head: Head,
    records: Vec<Record>,
    /// The file of the area, by device and inode.
    file: (u64, u64),
}

/// What taking out has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Patch areas that were given back.
    pub areas: usize,
    /// Sites whose bytes are as before.
    pub sites: usize,
    /// Sites whose bytes somebody else has changed since; they were left.
    pub foreign: usize,
    /// Areas that a handler of a signal returns to: nothing jumps there any more, but they stay mapped.
    pub kept: usize,
    /// How long the program stood still.
    pub stood: Duration,
}

impl Removed {
    /// With what another one did.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            areas: self.areas + other.areas,
            sites: self.sites + other.sites,
            foreign: self.foreign + other.foreign,
            kept: self.kept + other.kept,
            stood: self.stood.max(other.stood),
        }
    }
}

/// The patch areas in a program.
///
/// # Errors
/// [`Refusal`]: it has ended.
pub fn find(program: &Program) -> Result<Vec<Remains>, Refusal> {
    let mappings = program.mappings()?;
    Ok(mappings.iter().filter_map(|mapping| Remains::at(program, mapping)).collect())
}

/// Takes out all that refit has put into a program and into what was forked from it since. Areas that a handler of a signal returns to
/// are asked for again some times: handlers are short.
///
/// # Errors
/// [`Why`]: the program cannot be changed, or a thread does not leave the spliced code.
pub fn repair(program: &Program) -> Result<Removed, Why> {
    let mut removed = repair_once(program)?;
    for _ in 0..HANDLERS {
        if removed.kept == 0 || removed.foreign > 0 {
            break;
        }
        // Nothing tells from outside that a handler has returned.
        std::thread::sleep(HANDLER);
        removed.kept = 0;
        match repair_once(program) {
            Ok(more) => removed = removed.and(more),
            // With the program its memory is gone.
            Err(_) if program.ended() => break,
            Err(why) => return Err(why),
        }
    }
    Ok(removed)
}

/// Does it, but for areas that a handler of a signal returns to now.
fn repair_once(program: &Program) -> Result<Removed, Why> {
    let files: BTreeSet<_> = find(program)?.iter().map(|remains| remains.file).collect();
    let mut removed = take_out(program)?;
    // A fork that was going on while the list was made is in the next one.
    loop {
        let sharers: Vec<u32> = sharers(&files);
        if sharers.is_empty() {
            return Ok(removed);
        }
        for id in sharers {
            match Program::open(id).map_err(Why::from).and_then(|child| take_out(&child)) {
                Ok(more) if more.areas + more.sites > 0 => removed = removed.and(more),
                // Kept areas stay; asking again would not change that.
                Ok(more) => return Ok(removed.and(more)),
                Err(Why::Program(Refusal::NoSuch { .. } | Refusal::Ended { .. })) => {}
                Err(why) => return Err(why),
            }
        }
    }
}

/// Processes that have mapped one of these files.
fn sharers(files: &BTreeSet<(u64, u64)>) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|&id| {
            let mappings = refit_sys::maps::of(id).unwrap_or_default();
            mappings.iter().any(|mapping| is_area(mapping) && files.contains(&mapping.file))
        })
        .collect()
}

fn take_out(program: &Program) -> Result<Removed, Why> {
    let (mut removed, stood) = program.stand_still(PATIENCE, |still| {
        // Read while nobody runs: a fork copies what it finds.
        let remains = find(program)?;
        let mut removed = Removed::default();
        for one in &remains {
            removed = removed.and(one.take_out(still)?);
        }
        Ok::<_, Why>(removed)
    })?;
    removed.stood = stood;
    Ok(removed)
}

fn is_area(mapping: &Mapping) -> bool {
    let name = mapping.name.as_os_str().as_encoded_bytes();
    name.strip_prefix(b"/memfd:") == Some(NAME.to_bytes())
}

impl Remains {
    /// The patch area that begins with this mapping.
    fn at(program: &Program, mapping: &Mapping) -> Option<Self> {
        if !is_area(mapping) || mapping.offset != 0 || mapping.writable {
            return None;
        }
        Self::parse(&mapping.range, mapping.file, |address, into| program.read(address, into))
    }

    /// The patch area whose head and records are mapped at these addresses of a program. Nothing that `read` finds there is
    /// believed: it is the program's memory.
    #[doc(hidden)]
    pub fn parse(
        mapped: &Range<u64>,
        file: (u64, u64),
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> Option<Self> {
        let mut bytes = [0; Head::BYTES];
        read(mapped.start, &mut bytes).ok()?;
        let head = Head::from_bytes(&bytes).filter(|head| head.address == mapped.start)?;
        if head.code > mapped.end - mapped.start {
            return None;
        }
        // Copies elsewhere than in its code are none of ours.
        let code = head.code_range();
        let sound = |record: &Record| {
            let copies = record.copies.iter().all(|&(_, copy)| code.contains(&copy));
            copies && record.address < USER && record.old.len() == record.new.len()
        };
        // Page by page: what is no record ends it, however many were promised.
        let mut records = Vec::new();
        let mut left = head.records as usize;
        let mut at = head.address + PAGE;
        while left > 0 {
            let mut page = [0; PAGE as usize];
            let some = left.min(page.len() / Record::BYTES);
            read(at, &mut page[..some * Record::BYTES]).ok()?;
            let (texts, _) = page[..some * Record::BYTES].as_chunks::<{ Record::BYTES }>();
            for text in texts {
                records.push(Record::from_bytes(text).filter(sound)?);
            }
            left -= some;
            at += PAGE;
        }
        Some(Self { head, records, file })
    }

    /// How many places of the program it has changed.
    pub fn sites(&self) -> usize {
        self.records.iter().filter(|record| record.is_place()).count()
    }

    /// Instructions of functions that it has copied.
    pub(super) fn copied(&self) -> impl Iterator<Item = u64> + '_ {
        let records = self.records.iter().filter(|record| !record.changes());
        records.flat_map(|record| record.copies.iter().map(|&(from, _)| from))
    }

    fn take_out(&self, still: &mut Still<'_>) -> Result<Removed, Why> {
        let program = still.program();
        let mut removed = Removed::default();
        patches::change(program, &self.records, |record, now| {
            // Of a site that is reached by way of a springboard there are two records; one has the copies.
            let site = usize::from(record.is_place());
            match now {
                Now::New => removed.sites += site,
                Now::Foreign => removed.foreign += site,
                // It was killed before it could change it.
                Now::Old => {}
            }
            Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
        })?;
        self.clear_threads(still)?;
        let code = self.head.code_range();
        let held = frames::saved(still)?.iter().any(|frame| code.contains(&frame.counter));
        if held || removed.foreign > 0 {
            removed.kept = 1;
            return Ok(removed);
        }
        unmap(still, [self.head].into_iter())?;
        removed.areas = 1;
        Ok(removed)
    }

    /// Where a thread may stand that has taken the short jump at a site and not yet the long one that it leads to, and the site: the
    /// record of the former place stands before that of the site.
    fn hops(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pairs = self.records.windows(2).filter_map(|pair| pair.as_array::<2>());
        let hops = pairs.filter(|[place, site]| place.copies.is_empty() && !site.copies.is_empty());
        hops.map(|[place, site]| (place.address, site.address))
    }

    /// Brings every thread out of the code: back to the original of the instruction that it stands at, after some steps if it
    /// stands in a snippet.
    fn clear_threads(&self, still: &mut Still<'_>) -> Result<(), Why> {
        let code = self.head.code_range();
        let threads: Vec<_> = still.threads().collect();
        let mut counters = Vec::new();
        for &thread in &threads {
            counters.push(still.registers(thread)?.rip);
        }
        counters.extend(frames::saved(still)?.iter().map(|frame| frame.counter));
        let hops: BTreeMap<u64, u64> = self.hops().collect();
        // Nobody is there, as a rule, and there may be many copies.
        if !counters.iter().any(|counter| code.contains(counter) || hops.contains_key(counter)) {
            return Ok(());
        }
        let copies = self.records.iter().flat_map(|record| &record.copies);
        let back: BTreeMap<u64, u64> =
            copies.map(|&(from, copy)| (copy, from)).chain(hops).collect();
        for thread in threads {
            step_out(still, thread, &code, &back)?;
        }
        install::move_counters(still, &back)?;
        Ok(())
    }
}

fn step_out(
    still: &mut Still<'_>,
    thread: u32,
    code: &Range<u64>,
    back: &BTreeMap<u64, u64>,
) -> Result<(), Why> {
    for _ in 0..STEPS {
        let counter = still.registers(thread)?.rip;
        if !code.contains(&counter) || back.contains_key(&counter) {
            return Ok(());
        }
        still.step(thread)?;
    }
    Err(Why::InUse { thread })
}

/// Gives areas back.
pub(super) fn unmap(
    still: &mut Still<'_>,
    heads: impl Iterator<Item = Head>,
) -> Result<(), Refusal> {
    let call = Call::new(still)?;
    for head in heads {
        let (session, length) = head.session;
        for (address, length) in [(session, length), (head.address, head.end)] {
            if length > 0 {
                call.make(still, "munmap", libc::SYS_munmap, [address, length, 0, 0, 0, 0])?;
            }
        }
    }
    Ok(())
}
