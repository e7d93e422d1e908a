//! Finds the patch areas in a program and undoes the changes that they record. This can be done by
//! the process that made them or, if it was killed, by any later one.
//!
//! The area itself holds everything that is needed. A process forked from the program has the
//! changed code and the area too, and is cleaned as well.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::time::Duration;

use refit_sys::maps::Mapping;
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::patch_area::{is_area, is_name};
use refit_sys::process::same_memory;
use tracing::debug;

use crate::area::unmap;
use crate::patches::{self, Now};
use crate::process::{self, Call, Program, Refusal, STOP_TIMEOUT, Still, contexts, signal_frames};
use crate::record::{Head, Record};
use crate::why::Why;
use crate::{debugger, indices, libunwind, move_threads, semaphores};

/// Number and length of the pauses in which threads may leave an area. Snippets and handlers are
/// short, but a thread in one may have to wait for a processor.
const AGAIN: [(usize, Duration); 2] =
    [(50, Duration::from_millis(5)), (20, Duration::from_millis(100))];
/// End of the addresses of programs.
const USER: u64 = 1 << 47;

/// A patch area found in a program.
#[derive(Debug)]
pub struct Remains {
    head: Head,
    records: Vec<Record>,
    /// The file of the area, by device and inode.
    file: (u64, u64),
}

/// Result of taking out patch areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Patch areas that were unmapped.
    pub areas: usize,
    /// Sites whose original bytes were restored.
    pub sites: usize,
    /// Sites whose bytes another tool has changed since; they were left alone.
    pub foreign: usize,
    /// Areas that stay mapped; no site leads there any more.
    pub kept: usize,
    /// The reason that the last of them stays mapped.
    pub because: Option<KeptReason>,
    /// Longest time that the program was stopped.
    pub stood: Duration,
}

/// The reason that an area stays mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptReason {
    /// A thread is in it, or a signal handler returns to it.
    InUse,
    /// Another tool has changed a site of it, and may change it back.
    Foreign,
    /// No thread of the program may make the call that unmaps it (seccomp).
    Filtered,
    /// Every thread that may make the call waits where no signal reaches it.
    Restless,
    /// A word of the program's memory, where a saved context would have its program counter, is an
    /// address in the area.
    Saved,
    /// There is too much memory to search for saved contexts.
    Large,
}

impl KeptReason {
    /// Whether the reason may cease to hold by itself.
    fn passes(self) -> bool {
        matches!(self, Self::InUse | Self::Restless | Self::Saved)
    }
}

impl std::fmt::Display for KeptReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InUse => "a thread or a signal handler is executing it",
            Self::Foreign => "another tool has changed a site of it, and may change it back",
            Self::Filtered => "the program limits its system calls (seccomp) and may not unmap it",
            Self::Restless => "the threads that could unmap it wait where nothing interrupts them",
            Self::Saved => "the program has saved the context of a thread that was in it",
            Self::Large => "the program switches threads by itself, and its memory is too large to be searched for their contexts",
        })
    }
}

impl Removed {
    /// Adds the result of another program.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            areas: self.areas + other.areas,
            sites: self.sites + other.sites,
            foreign: self.foreign + other.foreign,
            kept: self.kept + other.kept,
            because: other.because.or(self.because),
            stood: self.stood.max(other.stood),
        }
    }
}

/// Finds the patch areas in a program.
///
/// # Errors
/// [`Refusal`]: the program has ended.
pub fn find(program: &Program) -> Result<Vec<Remains>, Refusal> {
    let mappings = program.mappings()?;
    Ok(mappings.iter().filter_map(|mapping| Remains::at(program, mapping)).collect())
}

/// Returns the first page of an area that is mapped at this address, with this number of records,
/// at most 2,048. For fuzzing.
#[doc(hidden)]
pub fn first_page(address: u64, records: u64) -> Vec<u8> {
    let (tables, code, data, end) = (0x4_0000, 0x6_0000, 0x8_0000, 0x10_0000);
    let session = (0, 0);
    let head = Head { address, tables, code, data, end, records, session, finders: 0 };
    let mut page = vec![0; PAGE_SIZE_U64 as usize];
    page[Head::AT as usize..][..Head::BYTES].copy_from_slice(&head.to_bytes());
    page
}

/// Takes out everything that refit has put into a program, and into processes forked from it since.
/// Areas to which a signal handler returns are retried a few times: handlers are short.
///
/// # Errors
/// [`Why`]: the program cannot be changed, or a thread does not leave the spliced code.
pub fn repair(program: &Program) -> Result<Removed, Why> {
    let files: BTreeSet<_> = find(program)?.iter().map(|remains| remains.file).collect();
    let mut removed = repair_once(program, &files)?;
    let pauses = AGAIN.iter().flat_map(|&(times, pause)| std::iter::repeat_n(pause, times));
    for pause in pauses {
        if !removed.because.is_some_and(KeptReason::passes) {
            break;
        }
        // Another process is not notified when a handler has returned, so this polls.
        std::thread::sleep(pause);
        (removed.kept, removed.because) = (0, None);
        match repair_once(program, &files) {
            Ok(more) => removed = removed.and(more),
            // The memory of a program ends with it.
            Err(_) if program.ended() => break,
            Err(why) => return Err(why),
        }
    }
    debug!(process = program.id(), kept = removed.kept, because = ?removed.because, "repaired");
    Ok(removed)
}

/// Takes out all areas that no thread is in now.
fn repair_once(program: &Program, files: &BTreeSet<(u64, u64)>) -> Result<Removed, Why> {
    let mut removed = take_out(program)?;
    // Nothing is left in these, or what is left has to stay.
    let mut done = BTreeSet::from([program.id()]);
    // A child whose fork was in progress while this list was made is in the next list.
    loop {
        let mut sharers: Vec<u32> = sharers(files);
        let face = program.face();
        sharers.retain(|&id| !done.contains(&id) && !same_memory(face, id).unwrap_or(false));
        if sharers.is_empty() {
            return Ok(removed);
        }
        for id in sharers {
            let cleaned = program.open_forked(id).map_err(Why::from);
            match cleaned.and_then(|child| take_out(&child)) {
                Ok(more) => {
                    if more.areas == 0 || more.kept > 0 {
                        done.insert(id);
                    }
                    removed = removed.and(more);
                }
                // Or it is a replica of a program that moves, which loses the mappings with it.
                Err(Why::Program(Refusal::NoSuch { .. } | Refusal::Ended { .. })) => {
                    _ = done.insert(id)
                }
                Err(why) => return Err(why),
            }
        }
    }
}

/// Returns the processes that have mapped one of these files.
fn sharers(files: &BTreeSet<(u64, u64)>) -> Vec<u32> {
    refit_sys::process::all()
        .filter(|&id| {
            let mappings = refit_sys::maps::of(id).unwrap_or_default();
            // One that reads the counts may have mapped the file, too, in one part.
            let runs = |one: &Mapping| is_area(one) && one.offset == 0 && !one.writable;
            mappings.iter().any(|one| runs(one) && files.contains(&one.file))
        })
        .collect()
}

fn take_out(program: &Program) -> Result<Removed, Why> {
    let leaked = leaked(program);
    let (removed, stood) = contexts::stand_still(program, STOP_TIMEOUT, |still| {
        // Searched while no task runs, so that no fork copies an area between this search and its
        // removal.
        let remains = find(program)?;
        let mut removed = Removed::default();
        let all = Areas::new(still, &remains)?;
        for one in &remains {
            removed = removed.and(one.take_out(still, &all)?);
        }
        if !leaked.is_empty() {
            close(still, &leaked)?;
        }
        process::clean(still)?;
        Ok::<_, Why>(removed)
    })?;
    Ok(Removed { stood, ..removed })
}

/// Takes out the areas at these addresses, which were just made, if they can be unmapped.
pub(crate) fn give_back(program: &Program, areas: &[u64]) -> Result<(), Why> {
    let work = |still: &mut Still<'_>| {
        let remains = find(program)?;
        let all = Areas::new(still, &remains)?;
        for one in remains.iter().filter(|one| areas.contains(&one.head.address)) {
            one.take_out(still, &all)?;
        }
        process::clean(still)?;
        Ok::<_, Why>(())
    };
    contexts::stand_still(program, STOP_TIMEOUT, work).map(drop)
}

/// Returns the descriptors of areas that the program has open because refit was killed between two
/// of its calls.
fn leaked(program: &Program) -> Vec<u64> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", program.face())).into_iter().flatten();
    let numbers = entries.flatten().filter_map(|entry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        is_name(link.as_os_str().as_encoded_bytes()).then_some(entry.file_name())
    });
    numbers.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

fn close(still: &mut Still<'_>, numbers: &[u64]) -> Result<(), Refusal> {
    let call = match Call::new(still) {
        Ok(call) => call,
        Err(Refusal::Filtered { .. } | Refusal::Restless { .. }) => return Ok(()),
        Err(refusal) => return Err(refusal),
    };
    // The program may have closed them itself while it ran, and opened others under these numbers.
    let there = leaked(still.program());
    for &number in numbers.iter().filter(|number| there.contains(number)) {
        call.make(still, "close", libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// All areas of a stopped program.
struct Areas {
    heads: Vec<Head>,
    /// Whether a thread may be reading the tables of any of them: it is in code that finds frames.
    reads: bool,
    /// Program counters to which signal handlers return.
    returns: Vec<u64>,
}

impl Areas {
    fn new(still: &Still<'_>, remains: &[Remains]) -> Result<Self, Refusal> {
        let heads: Vec<Head> = remains.iter().map(|one| one.head).collect();
        let returns = signal_frames::saved(still)?.into_iter().map(|frame| frame.counter).collect();
        let finders = heads.iter().map(Head::finders);
        let walkers = heads.iter().flat_map(|head| libunwind::code(still.program(), head));
        let finders: Vec<Range<u64>> =
            finders.chain(walkers).filter(|code| !code.is_empty()).collect();
        let (begin, end) =
            (finders.iter().map(|code| code.start), finders.iter().map(|code| code.end));
        let Some(around) = begin.min().zip(end.max()).map(|(begin, end)| begin..end) else {
            return Ok(Self { heads, reads: false, returns });
        };
        let finds = |counter: u64| finders.iter().any(|code| code.contains(&counter));
        let positions = still.positions()?.into_iter().map(|(counter, _)| counter);
        let reads = positions.chain(returns.iter().copied()).any(finds)
            || match contexts::saved(still, &around, finds)? {
                contexts::SearchResult::All(found) => !found.is_empty(),
                contexts::SearchResult::TooLarge => true,
            };
        Ok(Self { heads, reads, returns })
    }
}

impl Remains {
    /// Returns the patch area that begins with this mapping.
    fn at(program: &Program, mapping: &Mapping) -> Option<Self> {
        if !is_area(mapping) || mapping.offset != 0 || mapping.writable {
            return None;
        }
        Self::parse(&mapping.range, mapping.file, |address, into| program.read(address, into))
    }

    /// Parses the patch area whose head and records are mapped at these addresses of a program.
    /// Nothing that `read` returns is trusted: it is the program's memory.
    #[doc(hidden)]
    pub fn parse(
        mapped: &Range<u64>,
        file: (u64, u64),
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> Option<Self> {
        let mut bytes = [0; Head::BYTES];
        read(mapped.start + Head::AT, &mut bytes).ok()?;
        let head = Head::from_bytes(&bytes).filter(|head| head.address == mapped.start)?;
        if head.code > mapped.end - mapped.start {
            return None;
        }
        // A copy outside of the area's code makes the record invalid.
        let code = head.code_range();
        let sound = |record: &Record| {
            let copies = record.copies.iter().all(|&(_, copy)| code.contains(&copy));
            copies && record.address < USER && record.old.len() == record.new.len()
        };
        // Reads page by page: an invalid record ends it, however many the head promised.
        let mut records = Vec::new();
        let mut left = head.records as usize;
        let mut at = head.address + PAGE_SIZE_U64;
        while left > 0 {
            let mut page = [0; PAGE_SIZE_U64 as usize];
            let some = left.min(page.len() / Record::BYTES);
            read(at, &mut page[..some * Record::BYTES]).ok()?;
            let (texts, _) = page[..some * Record::BYTES].as_chunks::<{ Record::BYTES }>();
            for text in texts {
                records.push(Record::from_bytes(text).filter(sound)?);
            }
            left -= some;
            at += PAGE_SIZE_U64;
        }
        Some(Self { head, records, file })
    }

    /// Lists other areas in this one, unless it is one of them.
    pub(crate) fn list(&self, program: &Program, heads: &[Head]) -> Result<(), Refusal> {
        let own = heads.iter().any(|head| head.address == self.head.address);
        if own { Ok(()) } else { indices::add(program, &self.head, heads) }
    }

    /// Returns the number of sites that the area's records change.
    pub fn sites(&self) -> usize {
        self.records.iter().filter(|record| record.is_place()).count()
    }

    /// Returns the addresses of copied instructions.
    pub(crate) fn copied(&self) -> impl Iterator<Item = u64> + '_ {
        let records = self.records.iter().filter(|record| !record.changes());
        records.flat_map(|record| record.copies.iter().map(|&(from, _)| from))
    }

    /// Takes the area out. The order of the steps makes a kill harmless at any moment: short jumps
    /// are removed before their targets, threads between a short jump and its target are moved
    /// before either is removed, and copies stay until no thread is in them.
    fn take_out(&self, still: &mut Still<'_>, all: &Areas) -> Result<Removed, Why> {
        let program = still.program();
        let mut removed = Removed::default();
        let mut foreign = false;
        let backwards = self.records.iter().rev();
        let change = patches::decide(program, backwards, |record, now| {
            // A site with a springboard has two records; the one with copies is counted.
            let site = usize::from(record.is_place());
            match now {
                Now::New => removed.sites += site,
                Now::Foreign | Now::Replaced => removed.foreign += site,
                // The process that made the record was killed before it changed the site, or the
                // changed code is no longer mapped.
                Now::Old | Now::Gone => {}
            }
            foreign |= now == Now::Foreign;
            Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
        })?;
        self.clear_hops(still, all)?;
        change.make(program)?;
        semaphores::lower(program, &self.head, &self.records);
        self.clear_threads(still)?;
        let because = match self.in_use(still)? {
            true => Some(KeptReason::InUse),
            false if foreign => Some(KeptReason::Foreign),
            false if let Some(because) = self.is_saved(still)? => Some(because),
            false => match self.unmap(still, all) {
                Ok(true) => None,
                Ok(false) => Some(KeptReason::InUse),
                Err(Refusal::Filtered { .. }) => Some(KeptReason::Filtered),
                Err(Refusal::Restless { .. }) => Some(KeptReason::Restless),
                Err(refusal) => return Err(refusal.into()),
            },
        };
        removed.because = because;
        *(if because.is_some() { &mut removed.kept } else { &mut removed.areas }) = 1;
        Ok(removed)
    }

    /// Unmaps the area; some of the others may be unmapped already. Returns false if a thread is
    /// where it may come to use the area.
    fn unmap(&self, still: &mut Still<'_>, all: &Areas) -> Result<bool, Refusal> {
        let program = still.program();
        for other in &all.heads {
            indices::remove(program, other, &self.head);
        }
        libunwind::unregister(program, &self.head);
        // A thread that found the area listed may still be reading its tables.
        if all.reads || !debugger::hide(still, &self.head)? {
            return Ok(false);
        }
        unmap(still, [self.head].into_iter())?;
        Ok(true)
    }

    /// Whether the program has saved the context of a thread that was in the area. Contexts at the
    /// copy of an instruction are moved back to the original.
    fn is_saved(&self, still: &Still<'_>) -> Result<Option<KeptReason>, Refusal> {
        let program = still.program();
        let code = self.head.code_range();
        let found = match contexts::saved(still, &code, |_| true)? {
            contexts::SearchResult::TooLarge => return Ok(Some(KeptReason::Large)),
            contexts::SearchResult::All(found) if found.is_empty() => return Ok(None),
            contexts::SearchResult::All(found) => found,
        };
        let back = self.back();
        let mut left = false;
        for one in found {
            match back.get(&one.counter) {
                Some(&to) => contexts::put(program, &one, to)?,
                None => left = true,
            }
        }
        Ok(left.then_some(KeptReason::Saved))
    }

    /// Returns the originals of copied instructions, by the address of the copy.
    fn back(&self) -> BTreeMap<u64, u64> {
        let copies = self.records.iter().flat_map(|record| &record.copies);
        copies.map(|&(from, copy)| (copy, from)).collect()
    }

    fn in_use(&self, still: &Still<'_>) -> Result<bool, Refusal> {
        signal_frames::is_in_use(still, &self.head.code_range())
    }

    /// Moves every thread that is between a short jump and its long one. A handler that has
    /// interrupted such a thread may be unwinding its stack by the description of the long jump, so
    /// its thread continues in the area, which stays until then.
    fn clear_hops(&self, still: &mut Still<'_>, all: &Areas) -> Result<(), Refusal> {
        let hops: BTreeMap<u64, u64> =
            self.records.iter().filter_map(Record::springboard).collect();
        if all.returns.iter().any(|counter| hops.contains_key(counter)) {
            let jumps = self.records.iter().filter(|record| hops.contains_key(&record.address));
            let on = jumps.filter_map(Record::target).collect();
            move_threads::move_frames(still, &on)?;
        }
        let positions = still.positions()?;
        if positions.iter().any(|(counter, _)| hops.contains_key(counter)) {
            move_threads::move_positions(still, &hops)?;
        }
        move_threads::move_contexts(still, &hops)
    }

    /// Moves every thread that is at the copy of an instruction back to the original. Other threads
    /// in the area are in a snippet, and leave it when they run. So do those whose handlers may be
    /// unwinding their stacks by the descriptions of this area.
    fn clear_threads(&self, still: &mut Still<'_>) -> Result<(), Why> {
        // Usually no thread is there, and there may be many copies.
        if !self.in_use(still)? {
            return Ok(());
        }
        let code = self.head.code_range();
        let back = self.back();
        let asleep: Vec<u64> = still.asleep().map(|(_, waits)| waits.counter).collect();
        if asleep.iter().any(|counter| code.contains(counter)) {
            // The thread waits for a page, and will continue at this address.
            return Ok(());
        }
        let tables = self.head.address..code.start;
        if signal_frames::use_memory(still, &tables, |counter| code.contains(&counter))? {
            move_threads::move_positions(still, &back)?;
        } else {
            move_threads::move_counters(still, &back)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[test]
fn what_is_fuzzed_is_read_beyond_its_head() {
    let page = first_page(1 << 20, 0);
    let read = |_: u64, into: &mut [u8]| {
        into.copy_from_slice(&page[Head::AT as usize..][..Head::BYTES]);
        Ok(())
    };
    assert!(Remains::parse(&(1 << 20..1 << 30), (1, 2), read).is_some());
}
