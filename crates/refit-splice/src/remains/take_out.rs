//! Takes a patch area out of a stopped program.
//!
//! The sites at which unwinders learn of spliced code are restored last, once no thread is in any
//! area and no handler returns to one: a handler that has interrupted spliced code may begin to
//! unwind its stack at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::found::Remains;
use super::removed::KeptReason;
use crate::area::unmap;
use crate::patches::{Now, Places};
use crate::process::own_memory::Wanted;
use crate::process::search_before::search_before;
use crate::process::searched::Searched;
use crate::process::{Program, Refusal, Still, contexts, signal_frames};
use crate::record::{Head, Record};
use crate::returns::{self, Left};
use crate::rules::Rules;
use crate::why::Why;
use crate::{debugger, indices, libunwind, move_threads, semaphores};

/// All areas of a stopped program.
pub(super) struct Areas<'r> {
    heads: Vec<Head>,
    /// Whether a thread may be reading the tables of any of them: it is in code that finds frames.
    reads: bool,
    /// Program counters to which signal handlers return.
    returns: Vec<u64>,
    /// The rules of its frames, if copies make calls.
    rules: Option<&'r Rules>,
}

/// The sites of an area that are restored together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Sites at which unwinders learn of spliced code.
    Finders,
    /// All other sites.
    Others,
}

/// Result of restoring sites.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restored {
    pub(super) sites: usize,
    /// Sites that another tool has changed.
    pub(super) foreign: usize,
    /// Whether the other tool may change one of them back.
    pub(super) comes_back: bool,
    /// Why return addresses may still lead to the area.
    pub(super) returned_to: Option<KeptReason>,
}

impl Restored {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            sites: self.sites + other.sites,
            foreign: self.foreign + other.foreign,
            comes_back: self.comes_back | other.comes_back,
            returned_to: self.returned_to.or(other.returned_to),
        }
    }
}

impl<'r> Areas<'r> {
    pub(super) fn new(
        still: &Still<'_>,
        remains: &[Arc<Remains>],
        rules: Option<&'r Rules>,
    ) -> Result<Self, Refusal> {
        let heads: Vec<Head> = remains.iter().map(|one| one.head).collect();
        let returns = returns(still)?;
        let finders = finders(still.program(), &heads);
        if finders.is_empty() {
            return Ok(Self { heads, reads: false, returns, rules });
        }
        let wanted = Wanted::all(&finders);
        let positions = still.positions()?.into_iter().map(|(counter, _)| counter);
        let reads = positions.chain(returns.iter().copied()).any(|counter| wanted.has(counter))
            || match contexts::saved(still, wanted)? {
                contexts::SearchResult::All(found) => !found.is_empty(),
                contexts::SearchResult::TooLarge => true,
            };
        Ok(Self { heads, reads, returns, rules })
    }
}

/// Returns the program counters to which signal handlers return.
pub(super) fn returns(still: &Still<'_>) -> Result<Vec<u64>, Refusal> {
    Ok(signal_frames::saved(still)?.into_iter().map(|frame| frame.counter).collect())
}

/// Returns the code by which unwinders learn of these areas.
fn finders(program: &Program, heads: &[Head]) -> Vec<Range<u64>> {
    let walkers = heads.iter().flat_map(|head| libunwind::code(program, head));
    heads.iter().map(Head::finders).chain(walkers).filter(|code| !code.is_empty()).collect()
}

/// Searches a program for what the removal of these areas looks for, before it is stopped.
pub(super) fn search(program: &Program, remains: &[Arc<Remains>]) -> Option<Arc<Searched>> {
    search_before(program, || {
        if !contexts::switches(program) && !remains.iter().any(|one| one.head.calls()) {
            return Vec::new();
        }
        let heads: Vec<Head> = remains.iter().map(|one| one.head).collect();
        let hops = remains.iter().flat_map(|one| {
            let hops: BTreeSet<u64> =
                one.records.iter().filter_map(Record::springboard).map(|(from, _)| from).collect();
            move_threads::ranges(hops.into_iter())
        });
        let code = heads.iter().map(Head::code_range);
        code.chain(hops).chain(finders(program, &heads)).collect()
    })
}

/// Reads the rules of a program's frames, if copies make calls there.
pub(super) fn rules(program: &Program, found: &[Arc<Remains>]) -> Option<Rules> {
    found.iter().any(|one| one.head.calls()).then(|| Rules::of(program))
}

impl Remains {
    /// Restores the bytes of sites, and moves threads out of their copies. The order of the steps
    /// makes a kill harmless at any moment: short jumps are removed before their targets, threads
    /// between a short jump and its target are moved before either is removed, and copies stay
    /// until no thread is in them.
    pub(super) fn restore(
        &self,
        still: &mut Still<'_>,
        all: &Areas<'_>,
        part: Part,
    ) -> Result<Restored, Why> {
        if !self.head.has_code() {
            return self.restore_immediates(still);
        }
        let program = still.program();
        let records = self.records_of(part);
        let mut restored = Restored::default();
        let places = Places::new(records.iter().rev().copied());
        let change = places.decide(program, |record, now| {
            // A site with a springboard has two records; the one with copies is counted.
            let site = usize::from(record.is_place());
            match now {
                Now::New => restored.sites += site,
                Now::Foreign | Now::Replaced => restored.foreign += site,
                // The process that made the record was killed before it changed the site, or the
                // changed code is no longer mapped.
                Now::Old | Now::Gone => {}
            }
            restored.comes_back |= now == Now::Foreign;
            Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
        })?;
        clear_hops(&records, still, &all.returns)?;
        change.make(program)?;
        if part == Part::Others {
            semaphores::lower(program, &self.head, &self.records);
        }
        self.clear_threads(still, &records)?;
        if self.head.calls() && part == Part::Others {
            restored.returned_to = match all.rules {
                Some(rules) => {
                    returns::take_back(still, &self.head, self.back(), rules)?.map(reason)
                }
                // The area has been made since the rules were read.
                None => Some(KeptReason::InUse),
            };
        }
        Ok(restored)
    }

    /// Restores immediates. Instructions stay where they are, so no thread has to be moved. If some
    /// bytes are neither the old nor the new ones, all of the area stay: those of another area, or
    /// another tool, have replaced them since.
    fn restore_immediates(&self, still: &Still<'_>) -> Result<Restored, Why> {
        let (program, mut foreign) = (still.program(), 0);
        Places::new(&self.records).decide(program, |_, now| {
            foreign += usize::from(matches!(now, Now::Foreign | Now::Replaced));
            Ok::<_, Refusal>(None)
        })?;
        let mut restored = Restored { foreign, ..Restored::default() };
        if foreign == 0 {
            let change = Places::new(&self.records).decide(program, |record, now| {
                restored.sites += usize::from(now == Now::New);
                Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
            })?;
            change.make(program)?;
        }
        Ok(restored)
    }

    /// Returns the originals of all copied instructions, by the addresses of the copies. To make
    /// this of many takes longer than a stop.
    pub(super) fn back(&self) -> &BTreeMap<u64, u64> {
        self.back.get_or_init(|| back(self.records.iter()))
    }

    /// Returns the changes of a part, with those that only tell of copies.
    pub(super) fn records_of(&self, part: Part) -> Vec<&Record> {
        let finders = self.head.finders();
        let leads = |record: &&Record| record.target().is_some_and(|(_, to)| finders.contains(&to));
        let long: BTreeSet<u64> =
            self.records.iter().filter(leads).map(|record| record.address).collect();
        let finds = |record: &Record| match record.springboard() {
            _ if !record.changes() => {
                record.copies.first().is_some_and(|(_, copy)| finders.contains(copy))
            }
            Some((jump, _)) => long.contains(&jump),
            None => long.contains(&record.address),
        };
        let all = self.records.iter();
        all.filter(|record| finds(record) == (part == Part::Finders)).collect()
    }

    /// Whether unwinders learn of spliced code by code of this area.
    pub(super) fn has_finders(&self) -> bool {
        !self.head.finders().is_empty()
    }

    /// Whether one of these program counters is in its code.
    pub(super) fn is_at(&self, counters: &[u64]) -> bool {
        let code = self.head.code_range();
        counters.iter().any(|counter| code.contains(counter))
    }

    /// Unmaps the area, whose sites have been restored, if nothing can come to use it; otherwise
    /// returns why it stays. `counters` are those of all threads and frames.
    pub(super) fn release(
        &self,
        still: &mut Still<'_>,
        all: &Areas<'_>,
        counters: &[u64],
        restored: Restored,
    ) -> Result<Option<KeptReason>, Why> {
        Ok(match self.is_at(counters) {
            _ if !self.head.has_code() => match unmap(still, [self.head].into_iter()) {
                Ok(()) => None,
                Err(Refusal::Filtered { .. }) => Some(KeptReason::Filtered),
                Err(Refusal::Restless { .. }) => Some(KeptReason::Restless),
                Err(refusal) => return Err(refusal.into()),
            },
            true => Some(KeptReason::InUse),
            false if restored.comes_back => Some(KeptReason::Foreign),
            false if restored.returned_to.is_some() => restored.returned_to,
            false if let Some(because) = self.is_saved(still)? => Some(because),
            false if let Some(because) = self.is_returned_to(still)? => Some(because),
            false => match self.unmap(still, all) {
                Ok(true) => None,
                Ok(false) => Some(KeptReason::InUse),
                Err(Refusal::Filtered { .. }) => Some(KeptReason::Filtered),
                Err(Refusal::Restless { .. }) => Some(KeptReason::Restless),
                Err(refusal) => return Err(refusal.into()),
            },
        })
    }

    /// Whether return addresses lead to its code that are not on stacks.
    fn is_returned_to(&self, still: &Still<'_>) -> Result<Option<KeptReason>, Why> {
        if !self.head.calls() {
            return Ok(None);
        }
        Ok(returns::left(still, &self.head, self.back())?.map(reason))
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
        let found = match contexts::saved(still, Wanted::all(std::slice::from_ref(&code)))? {
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

    /// Moves every thread that is at the copy of an instruction, as these records have it, back to
    /// the original. Other threads in the area are in a snippet, and leave it when they run. So do
    /// those whose handlers may be unwinding their stacks by the descriptions of this area.
    fn clear_threads(&self, still: &mut Still<'_>, records: &[&Record]) -> Result<(), Why> {
        // Usually no thread is there, and there may be many copies.
        if records.is_empty() || !self.is_at(&signal_frames::counters(still)?) {
            return Ok(());
        }
        let code = self.head.code_range();
        let back = back(records.iter().copied());
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

fn reason(left: Left) -> KeptReason {
    match left {
        Left::InUse => KeptReason::InUse,
        Left::Unknown => KeptReason::Unknown,
        Left::Saved => KeptReason::Saved,
        Left::Large => KeptReason::Large,
    }
}

/// Returns the originals of copied instructions, by the address of the copy.
fn back<'r>(records: impl Iterator<Item = &'r Record>) -> BTreeMap<u64, u64> {
    let copies = records.flat_map(|record| &record.copies);
    copies.map(|&(from, copy)| (copy, from)).collect()
}

/// Moves every thread that is between a short jump and its long one. A handler that has interrupted
/// such a thread may be unwinding its stack by the description of the long jump, so its thread
/// continues in the area, which stays until then.
pub(super) fn clear_hops(
    records: &[&Record],
    still: &mut Still<'_>,
    returns: &[u64],
) -> Result<(), Refusal> {
    let hops: BTreeMap<u64, u64> =
        records.iter().filter_map(|record| record.springboard()).collect();
    if returns.iter().any(|counter| hops.contains_key(counter)) {
        let jumps = records.iter().filter(|record| hops.contains_key(&record.address));
        let on = jumps.filter_map(|record| record.target()).collect();
        move_threads::move_frames(still, &on)?;
    }
    let positions = still.positions()?;
    if positions.iter().any(|(counter, _)| hops.contains_key(counter)) {
        move_threads::move_positions(still, &hops)?;
    }
    move_threads::move_contexts(still, &hops)
}
