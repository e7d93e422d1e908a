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
use refit_sys::process::same_memory;

use crate::area::{is_area, is_name, unmap};
use crate::patches::{self, Now};
use crate::process::{self, Call, Program, Refusal, Still, signal_frames};
use crate::record::{Head, PAGE, Record};
use crate::why::Why;
use crate::{contexts, move_threads};

const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is waited for that nobody is in an area any more, and how long each time: snippets and handlers are short, and a thread in
/// one may have to wait for a processor.
const AGAIN: [(usize, Duration); 2] =
    [(50, Duration::from_millis(5)), (20, Duration::from_millis(100))];
/// Where addresses of programs end.
const USER: u64 = 1 << 47;

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
    /// Areas that stay mapped; no site leads there any more.
    pub kept: usize,
    /// Why the last of them does.
    pub because: Option<Because>,
    /// How long the program stood still.
    pub stood: Duration,
}

/// Why an area stays mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// A thread is in it, or a handler of a signal returns to it.
    InUse,
    /// Somebody else has changed a site of it, and may change it back.
    Foreign,
    /// No thread of the program may make the call that gives it back (seccomp).
    Filtered,
    /// Every thread that may make it waits where nothing reaches it.
    Restless,
    /// Memory of the program has an address in it where a saved context would.
    Saved,
    /// There is too much memory to look for saved contexts in.
    Large,
}

impl Because {
    /// Whether that may change by itself.
    fn passes(self) -> bool {
        matches!(self, Self::InUse | Self::Restless | Self::Saved)
    }
}

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InUse => "a thread, or the handler of a signal, is on its way through it",
            Self::Foreign => "another tool has changed a site of it, and may change it back",
            Self::Filtered => "the program limits its system calls (seccomp) and may not unmap it",
            Self::Restless => "the threads that could unmap it wait where nothing interrupts them",
            Self::Saved => "the program has saved the context of a thread that was in it",
            Self::Large => "the program switches threads by itself, and its memory is too large to be searched for their contexts",
        })
    }
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
            because: other.because.or(self.because),
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
    let files: BTreeSet<_> = find(program)?.iter().map(|remains| remains.file).collect();
    let mut removed = repair_once(program, &files)?;
    let pauses = AGAIN.iter().flat_map(|&(times, pause)| std::iter::repeat_n(pause, times));
    for pause in pauses {
        if !removed.because.is_some_and(Because::passes) {
            break;
        }
        // Nothing tells from outside that a handler has returned.
        std::thread::sleep(pause);
        (removed.kept, removed.because) = (0, None);
        match repair_once(program, &files) {
            Ok(more) => removed = removed.and(more),
            // With the program its memory is gone.
            Err(_) if program.ended() => break,
            Err(why) => return Err(why),
        }
    }
    Ok(removed)
}

/// Does it, but for areas that somebody is in now.
fn repair_once(program: &Program, files: &BTreeSet<(u64, u64)>) -> Result<Removed, Why> {
    let mut removed = take_out(program)?;
    // In these something stays.
    let mut done = BTreeSet::from([program.id()]);
    // A fork that was going on while the list was made is in the next one.
    loop {
        let mut sharers: Vec<u32> = sharers(files);
        let face = program.face();
        sharers.retain(|&id| !done.contains(&id) && !same_memory(face, id).unwrap_or(false));
        if sharers.is_empty() {
            return Ok(removed);
        }
        for id in sharers {
            let cleaned = Program::open_to_clean(id).map_err(Why::from);
            match cleaned.and_then(|child| take_out(&child)) {
                Ok(more) => {
                    if more.areas == 0 || more.kept > 0 {
                        done.insert(id);
                    }
                    removed = removed.and(more);
                }
                Err(Why::Program(Refusal::NoSuch { .. } | Refusal::Ended { .. })) => {}
                Err(why) => return Err(why),
            }
        }
    }
}

/// Processes that have mapped one of these files.
fn sharers(files: &BTreeSet<(u64, u64)>) -> Vec<u32> {
    refit_sys::process::all()
        .filter(|&id| {
            let mappings = refit_sys::maps::of(id).unwrap_or_default();
            mappings.iter().any(|mapping| is_area(mapping) && files.contains(&mapping.file))
        })
        .collect()
}

fn take_out(program: &Program) -> Result<Removed, Why> {
    let leaked = leaked(program);
    let (mut removed, stood) = contexts::stand_still(program, PATIENCE, |still| {
        // Read while nobody runs: a fork copies what it finds.
        let remains = find(program)?;
        let mut removed = Removed::default();
        for one in &remains {
            removed = removed.and(one.take_out(still)?);
        }
        if !leaked.is_empty() {
            close(still, &leaked)?;
        }
        process::clean(still)?;
        Ok::<_, Why>(removed)
    })?;
    removed.stood = stood;
    Ok(removed)
}

/// Takes out the areas at these addresses, which have been made a moment ago; what cannot be given back stays.
pub(crate) fn give_back(program: &Program, areas: &[u64]) -> Result<(), Why> {
    let work = |still: &mut Still<'_>| {
        for one in find(program)?.iter().filter(|one| areas.contains(&one.head.address)) {
            one.take_out(still)?;
        }
        process::clean(still)?;
        Ok::<_, Why>(())
    };
    contexts::stand_still(program, PATIENCE, work).map(drop)
}

/// Descriptors of areas that a program has open: refit was killed between two calls.
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
    // The program may have closed them itself, and opened others, while it ran.
    let there = leaked(still.program());
    for &number in numbers.iter().filter(|number| there.contains(number)) {
        call.make(still, "close", libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
    }
    Ok(())
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
    pub(crate) fn copied(&self) -> impl Iterator<Item = u64> + '_ {
        let records = self.records.iter().filter(|record| !record.changes());
        records.flat_map(|record| record.copies.iter().map(|&(from, _)| from))
    }

    /// Takes it out. The order is such that it does not matter when refit is killed: short jumps go before what they lead to, threads between
    /// the two before both, and copies stay until nobody is in them.
    fn take_out(&self, still: &mut Still<'_>) -> Result<Removed, Why> {
        let program = still.program();
        let mut removed = Removed::default();
        let mut foreign = false;
        let backwards = self.records.iter().rev();
        let change = patches::decide(program, backwards, |record, now| {
            // Of a site that is reached by way of a springboard there are two records; one has the copies.
            let site = usize::from(record.is_place());
            match now {
                Now::New => removed.sites += site,
                Now::Foreign | Now::Replaced => removed.foreign += site,
                // It was killed before it could change it; or what it has changed is not mapped any more.
                Now::Old | Now::Gone => {}
            }
            foreign |= now == Now::Foreign;
            Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
        })?;
        let hops: BTreeMap<u64, u64> = self.hops().collect();
        let positions = still.positions()?;
        if positions.iter().any(|(counter, _)| hops.contains_key(counter)) {
            move_threads::move_counters(still, &hops)?;
        }
        move_threads::move_contexts(still, &hops)?;
        change.make(program)?;
        self.clear_threads(still)?;
        let because = match self.in_use(still)? {
            true => Some(Because::InUse),
            false if foreign => Some(Because::Foreign),
            false if let Some(because) = self.is_saved(still)? => Some(because),
            false => match unmap(still, [self.head].into_iter()) {
                Ok(()) => None,
                Err(Refusal::Filtered { .. }) => Some(Because::Filtered),
                Err(Refusal::Restless { .. }) => Some(Because::Restless),
                Err(refusal) => return Err(refusal.into()),
            },
        };
        removed.because = because;
        *(if because.is_some() { &mut removed.kept } else { &mut removed.areas }) = 1;
        Ok(removed)
    }

    /// Whether the program has saved the context of a thread that was in it. Those that stand at the copy of an instruction go back to the
    /// original.
    fn is_saved(&self, still: &Still<'_>) -> Result<Option<Because>, Refusal> {
        let program = still.program();
        let code = self.head.code_range();
        let found = match contexts::saved(still, &code, |_| true)? {
            contexts::Found::TooLarge => return Ok(Some(Because::Large)),
            contexts::Found::All(found) if found.is_empty() => return Ok(None),
            contexts::Found::All(found) => found,
        };
        let back = self.back();
        let mut left = false;
        for one in found {
            match back.get(&one.counter) {
                Some(&to) => contexts::put(program, &one, to)?,
                None => left = true,
            }
        }
        Ok(left.then_some(Because::Saved))
    }

    /// Where the copies of instructions come from.
    fn back(&self) -> BTreeMap<u64, u64> {
        let copies = self.records.iter().flat_map(|record| &record.copies);
        copies.map(|&(from, copy)| (copy, from)).collect()
    }

    fn in_use(&self, still: &Still<'_>) -> Result<bool, Refusal> {
        signal_frames::is_in_use(still, &self.head.code_range())
    }

    /// Where a thread may stand that has taken the short jump at a site and not yet the long one that it leads to, and the site.
    fn hops(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.records.iter().filter_map(|record| match record.new[..] {
            [_, distance] => {
                let end = record.address + record.new.len() as u64;
                let to = end.wrapping_add_signed(distance.cast_signed().into());
                Some((to, record.address))
            }
            _ => None,
        })
    }

    /// Sends every thread that stands at the copy of an instruction back to the original. Others are in a snippet, and leave it when they
    /// run.
    fn clear_threads(&self, still: &mut Still<'_>) -> Result<(), Why> {
        // Nobody is there, as a rule, and there may be many copies.
        if !self.in_use(still)? {
            return Ok(());
        }
        let code = self.head.code_range();
        let back = self.back();
        let asleep: Vec<u64> = still.asleep().map(|(_, waits)| waits.counter).collect();
        if asleep.iter().any(|counter| code.contains(counter)) {
            // It waits for a page, and goes on where it is.
            return Ok(());
        }
        move_threads::move_counters(still, &back)?;
        Ok(())
    }
}
