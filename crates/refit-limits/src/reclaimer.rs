//! The reclaimer's rounds: which programs are served, what of them is counted, and which pages are
//! evicted.
//!
//! The limit is one number for the tree. Memory that is not served (mapped since the last round, or
//! not servable) and the memory that compressed pages take are subtracted from it; the rest are the
//! frames of the budget.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refit_memory::program::{AnonymousStats, Pager, STAGING_AREA, Share};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::pagemap::Pagemap;
use refit_sys::process::same_memory;

use crate::served::Served;
use crate::setup::{self, LimitSetup};
use crate::shared::{Shared, Totals, bytes};
use crate::{births, coverage, survey};

/// The pause between two rounds while little of the limit is used, and while much is; and while
/// there is no limit.
const IDLE_PAUSE: Duration = Duration::from_millis(20);
const BUSY_PAUSE: Duration = Duration::from_millis(4);
/// The interval at which processes' shares of common memory are read.
const SHARE_INTERVAL: Duration = Duration::from_millis(100);
const UNLIMITED_PAUSE: Duration = Duration::from_secs(3600);
/// A program with less memory than this is not worth serving, in bytes.
const MIN_SERVED: u64 = 1 << 20;
/// This much uncounted memory is worth reading a program's mappings, in bytes.
const MIN_UNCOUNTED: u64 = 256 << 10;
/// The largest number of rounds between two readings of a program that has memory which cannot be
/// counted.
const MAX_BACKOFF: u32 = 127;
/// The number of rounds in which the process of a memory may be unknown: a child faults before its
/// first stop is seen.
const UNKNOWN_ROUNDS: u32 = 250;
/// The smallest number of frames, however small the limit is: a program makes no progress with
/// fewer.
const MIN_FRAMES: u64 = 64;
/// The number of rounds without success after which more is allowed than the limit permits.
const FRUITLESS_ROUNDS: u32 = 16;
/// Compressed pages may take the limit divided by this: what they take is missing where pages are
/// used (`bench/RESULTS.md`, paging).
const COMPRESSED_SHARE: u64 = 8;
/// The time for which a store that has refused a page is left alone: the disk may have room again.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// The number of pages that are counted at once.
const COUNT_BATCH: usize = 512;

/// The data of the reclaimer's thread.
pub(crate) struct Reclaimer {
    shared: Arc<Shared>,
    /// Since when the store takes no more pages, so that more is allowed than the limit permits.
    full: Option<Instant>,
    /// The number of successive rounds in which frames were short and none could be freed.
    fruitless_rounds: u32,
    /// By pager: the number of pages that had come when frames were short last.
    arrivals: BTreeMap<usize, u64>,
    /// The memory of each process if common memory is shared out: when that was read, the memory
    /// that the process had in all, and its share.
    shares: BTreeMap<u32, (Instant, u64, u64)>,
}

impl Reclaimer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (arrivals, shares) = (BTreeMap::new(), BTreeMap::new());
        Self { shared, full: None, fruitless_rounds: 0, arrivals, shares }
    }

    /// Runs rounds until the end.
    pub(crate) fn run(mut self) {
        loop {
            // Pairs with `Shared::short`: a shortage that is reported from now on is handled in the
            // next round.
            self.shared.short.swap(false, Ordering::AcqRel);
            let limit = self.shared.state().limit;
            let wait = catch_unwind(AssertUnwindSafe(|| {
                // A child whose mark could not be read at its first stop, although its pager was
                // there, is found now: nothing else would let it begin.
                self.shared.let_begin();
                match limit {
                    Some(limit) => self.round(limit),
                    None => {
                        self.release();
                        UNLIMITED_PAUSE
                    }
                }
            }));
            let wait = wait.unwrap_or_else(|_| {
                // A panic of ours, which the log has; nobody must wait for frames because of it.
                self.shared.state().totals.failures += 1;
                self.shared.commons.budget.allow(u64::MAX / PAGE_SIZE_U64);
                self.pagers().iter().for_each(|pager| pager.ring());
                IDLE_PAUSE
            });
            // If nothing can be freed now, faster rounds do not help.
            if (self.fruitless_rounds > 0 && self.shared.rest(BUSY_PAUSE)) || self.shared.wait(wait)
            {
                return;
            }
        }
    }

    fn round(&mut self, limit: u64) -> Duration {
        self.shared.commons.store.allow(limit / COMPRESSED_SHARE);
        // One batch shows whether the store still takes none; that is known before this round is
        // over.
        self.full.take_if(|since| since.elapsed() >= STORE_RETRY);
        let processes = self.shared.supervisor.process_numbers();
        self.shared.state().refused.retain(|process, _| processes.contains(process));
        self.end_unowned();
        self.free_unknown();
        let mut all: Vec<(u32, u64)> =
            processes.iter().map(|&process| (process, survey::resident(process))).collect();
        self.leave_out_borrowers(&mut all);
        let resident = self.total_resident(&all);
        if resident > limit / 2 || !self.shared.state().served.is_empty() {
            for &(process, resident) in all.iter().filter(|(_, resident)| *resident > MIN_SERVED) {
                self.begin(process);
                self.count(process, resident, limit);
            }
        }
        let served = self.allow(limit, resident);
        self.evict();
        self.total(resident, served);
        if resident > limit / 4 { BUSY_PAUSE } else { IDLE_PAUSE }
    }

    /// Returns the memory of all processes, where what a parent has in common with its children
    /// counts once.
    fn total_resident(&mut self, all: &[(u32, u64)]) -> u64 {
        let mut sum = 0;
        let several = all.iter().filter(|(_, resident)| *resident > MIN_SERVED).count() > 1;
        for &(process, resident) in all {
            sum += match self.shares.get(&process) {
                _ if !several || resident <= MIN_SERVED => resident,
                // A share is read rarely; meanwhile it is taken to grow and shrink as the whole
                // does.
                Some(&(when, whole, share)) if when.elapsed() < SHARE_INTERVAL => {
                    (share + resident).saturating_sub(whole)
                }
                _ => {
                    let share = survey::share(process);
                    self.shares.insert(process, (Instant::now(), resident, share));
                    share
                }
            };
        }
        self.shares.retain(|process, _| all.iter().any(|(known, _)| known == process));
        sum
    }

    /// Ends pagers whose memory belongs to no process any more.
    fn end_unowned(&self) {
        let mut state = self.shared.state();
        // The supervisor reports the ends of processes that are known.
        let is_unused = |one: &mut Served| {
            let place = one.place();
            one.process.is_none() && !one.pager.alive(&(place..place + PAGE_SIZE_U64))
        };
        state.end(is_unused);
    }

    /// Gives memory back to processes that nobody follows, which would outlive the pagers that
    /// serve them. A process that is followed is known from its birth, as long as there are marks
    /// for it.
    fn free_unknown(&self) {
        let mut unknown = Vec::new();
        for one in self.shared.state().served.iter_mut().filter(|one| one.process.is_none()) {
            one.unknown += 1;
            if one.unknown > UNKNOWN_ROUNDS {
                unknown.push(Arc::clone(&one.pager));
            }
        }
        for pager in unknown {
            // The pages of a child come back only where they are its own.
            if !pager.find_inherited(None) {
                continue;
            }
            // This takes memory from the others.
            self.shared.commons.budget.allow(u64::MAX / PAGE_SIZE_U64);
            if pager.release() {
                self.shared.state().end(|one| Arc::ptr_eq(&one.pager, &pager));
            }
        }
    }

    /// Removes processes that use another's memory, as long as they are no programs of their own
    /// (`vfork`): it must not count twice.
    fn leave_out_borrowers(&self, all: &mut Vec<(u32, u64)>) {
        let mut seen: Vec<(u32, u64)> = Vec::new();
        all.retain(|&(process, resident)| {
            let as_much = seen.iter().filter(|(_, other)| resident.abs_diff(*other) < MIN_SERVED);
            let borrows = resident > 0
                && as_much
                    .into_iter()
                    .any(|&(other, _)| same_memory(process, other).unwrap_or(false));
            if !borrows {
                seen.push((process, resident));
            }
            !borrows
        });
    }

    /// Begins to serve a program, unless it is served already.
    fn begin(&self, process: u32) {
        let known = {
            let mut state = self.shared.state();
            // Set first: if the program ends or executes another one, its setup sees that.
            state.setting_up = Some(process);
            let evicts = |one: &Served| one.process == Some(process) && one.pager.can_evict();
            if state.refused.contains_key(&process) || state.served.iter().any(evicts) {
                return;
            }
            // A program that was set up is known; so is a child from its birth, as long as there
            // are marks.
            let known = state.served.iter().find(|one| one.process == Some(process));
            let known = known.map(|one| Arc::clone(&one.pager));
            known.or_else(|| state.identify(process))
        };
        known.iter().for_each(|pager| births::settle(pager, process));
        let userfault = known.as_ref().map(|pager| Arc::clone(pager.userfault()));
        let begun = setup::set_up(&self.shared.supervisor, process, userfault)
            .and_then(|installed| self.attach_staging_area(process, known, installed));
        match begun {
            // It is tried again in the next round.
            Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => {}
            Err(error) => self.shared.refuse(process, &error),
            Ok(()) => {}
        }
    }

    fn attach_staging_area(
        &self,
        process: u32,
        known: Option<Arc<Pager>>,
        installed: LimitSetup,
    ) -> io::Result<()> {
        let LimitSetup { userfault, staging_area, area, marks } = installed;
        // From now on there come no more guards.
        let guarded = survey::is_guarded(process)?;
        if let Some(pager) = known {
            pager.attach_staging_area(staging_area, &marks)?;
            let mut state = self.shared.state();
            if state.setting_up != Some(process) {
                // Its pager was ended before the staging area could be ended with it.
                pager.end();
            } else if let Some(one) =
                state.served.iter_mut().find(|one| Arc::ptr_eq(&one.pager, &pager))
            {
                one.areas.push(area);
                (one.marks, one.marked, one.guarded) = (marks, None, guarded);
            }
            return Ok(());
        }
        let name = process.to_string();
        let outside: Arc<dyn refit_memory::program::Outside> = Arc::clone(&self.shared) as _;
        let commons = Arc::clone(&self.shared.commons);
        let pager = Pager::new(&name, userfault, commons, outside)?;
        pager.attach_staging_area(staging_area, &marks)?;
        self.shared.serve(Served {
            pager: Arc::clone(&pager),
            process: Some(process),
            child: false,
            areas: vec![area],
            marks,
            guarded,
            marked: None,
            backoff: (0, 0),
            unknown: 0,
        })?;
        let mut state = self.shared.state();
        if state.setting_up != Some(process) {
            state.served.retain(|one| !Arc::ptr_eq(&one.pager, &pager));
            pager.end();
        }
        Ok(())
    }

    /// Finds memory of a program that is not counted, and counts it.
    fn count(&self, process: u32, resident: u64, limit: u64) {
        let (pager, areas, shared, guarded) = {
            let state = self.shared.state();
            let found = state.served.iter().find(|one| one.process == Some(process));
            // A program that is refused is about to be served no more.
            let Some(one) = found.filter(|_| !state.refused.contains_key(&process)) else {
                return;
            };
            (Arc::clone(&one.pager), one.areas.clone(), one.counts_shared(), one.guarded)
        };
        settle(&pager, process);
        // Pages for which there are no frames follow in one of the next rounds.
        pager.leave_to_kernel();
        if resident.saturating_sub(bytes(served_pages(&pager))) < MIN_UNCOUNTED
            || !self.is_due(process)
        {
            return;
        }
        // What is counted now has been subtracted from the frames already.
        self.shared.commons.budget.allow((limit / PAGE_SIZE_U64).max(MIN_FRAMES));
        // A process that has ended meanwhile is not counted.
        let counted = || {
            let all = coverage::cover(&pager, process, &areas, guarded)?;
            self.count_all(&pager, process, all, shared)
        };
        let found = counted().unwrap_or(0);
        let mut state = self.shared.state();
        if let Some(one) = state.served.iter_mut().find(|one| one.process == Some(process)) {
            // Memory that cannot be counted, since it is shared with others or not servable, is
            // still there next time.
            let backoff = if bytes(found) < MIN_UNCOUNTED {
                (2 * one.backoff.1 + 1).min(MAX_BACKOFF)
            } else {
                0
            };
            one.backoff = (backoff, backoff);
        }
    }

    /// Returns whether the mappings of a process are read in this round.
    fn is_due(&self, process: u32) -> bool {
        let mut state = self.shared.state();
        let Some(one) = state.served.iter_mut().find(|one| one.process == Some(process)) else {
            return false;
        };
        let is_due = one.backoff.0 == 0;
        one.backoff.0 = one.backoff.0.saturating_sub(1);
        is_due
    }

    /// Counts pages. Returns how many were not counted before.
    fn count_all(
        &self,
        pager: &Pager,
        process: u32,
        all: Vec<Range<u64>>,
        shared: bool,
    ) -> io::Result<u64> {
        let before = served_pages(pager);
        let mut evicted = 0;
        let pagemap = Pagemap::of(process)?;
        for part in all {
            let pages = survey::present(&pagemap, &part, shared)?;
            let mut left = &pages[..];
            let mut stuck = 0;
            while !left.is_empty() && stuck < 2 {
                let counted = pager.adopt(&left[..left.len().min(COUNT_BATCH)]);
                left = &left[counted..];
                if counted < COUNT_BATCH && !left.is_empty() {
                    let freed = pager.evict(STAGING_AREA).unwrap_or(0);
                    evicted += freed as u64;
                    stuck = if freed + counted == 0 { stuck + 1 } else { 0 };
                }
            }
        }
        Ok((served_pages(pager) + evicted).saturating_sub(before))
    }

    /// Sets the number of frames. Returns the number of bytes that are served.
    fn allow(&self, limit: u64, resident: u64) -> u64 {
        let served: u64 = self.pagers().iter().map(|pager| bytes(served_pages(pager))).sum();
        let compressed = self.shared.commons.store.stats().compressed_bytes;
        let apart = resident.saturating_sub(served) + compressed;
        let bound = if self.full.is_some() { u64::MAX } else { limit.saturating_sub(apart) };
        let frames = bound / PAGE_SIZE_U64;
        // If the memory that cannot be evicted exceeds the limit, the limit cannot be enforced:
        // that would only bring all programs to a standstill.
        let least = MIN_FRAMES * self.pagers().len() as u64 + limit / PAGE_SIZE_U64 / 16;
        let budget = self.shared.commons.budget;
        // Nor must any thread wait forever if pages are not evicted that could be.
        let more = if self.fruitless_rounds < FRUITLESS_ROUNDS {
            0
        } else {
            budget.stats().taken + MIN_FRAMES
        };
        budget.allow(frames.max(least).max(more));
        served
    }

    /// Evicts pages until frames are free.
    fn evict(&mut self) {
        let pagers = self.pagers();
        let short = || {
            let stats = self.shared.commons.budget.stats();
            stats.free() < stats.reserve()
        };
        self.fruitless_rounds = match short() && !self.free_frames(&pagers) {
            true => self.fruitless_rounds.saturating_add(1),
            false => 0,
        };
        // Programs of which nothing can be evicted may wait for frames, too.
        pagers.iter().for_each(|pager| pager.ring());
    }

    /// Evicts pages of programs that can spare some, then of those that have to give. Returns
    /// whether any were evicted, or none need to be, or none ever can be.
    fn free_frames(&mut self, pagers: &[Arc<Pager>]) -> bool {
        let budget = self.shared.commons.budget;
        let pagers: Vec<_> = pagers.iter().filter(|pager| pager.can_evict()).collect();
        if pagers.is_empty() {
            return true;
        }
        let mut spare: Vec<u64> = pagers.iter().map(|pager| pager.space().spare()).collect();
        let shares = self.shares_of(&pagers);
        let (mut stuck, mut freed) = (0, 0);
        while stuck < 2 * pagers.len() {
            let stats = budget.stats();
            if stats.free() >= stats.reserve() {
                return true;
            }
            let most = (0..pagers.len()).max_by_key(|&at| spare[at]);
            let most = most.filter(|&at| spare[at] >= STAGING_AREA as u64);
            // A program that has no more to give is passed over; otherwise nobody would find out
            // that there is nothing.
            let gives = budget.who_gives(&shares).unwrap_or(0);
            let at = most.unwrap_or((gives + stuck) % pagers.len());
            match pagers[at].evict(STAGING_AREA) {
                Ok(0) => (spare[at], stuck) = (0, stuck + 1),
                Ok(some) => {
                    spare[at] = spare[at].saturating_sub(some as u64);
                    (stuck, freed) = (0, freed + some);
                }
                Err(_) => {
                    self.full = Some(Instant::now());
                    return true;
                }
            }
        }
        freed > 0
    }

    /// Returns the frames that programs have, and the pages that have come to them since the last
    /// call.
    fn shares_of(&mut self, pagers: &[&Arc<Pager>]) -> Vec<Share> {
        let mut arrivals = BTreeMap::new();
        let mut share = |pager: &&Arc<Pager>| {
            let AnonymousStats { resident, faults, around, .. } = pager.space().stats();
            let name = Arc::as_ptr(pager) as usize;
            arrivals.insert(name, faults + around);
            let before = self.arrivals.get(&name).copied().unwrap_or(0);
            Share { resident, came: (faults + around).saturating_sub(before) }
        };
        let shares = pagers.iter().map(&mut share).collect();
        self.arrivals = arrivals;
        shares
    }

    fn total(&mut self, resident: u64, served: u64) {
        let mut state = self.shared.state();
        let lost = state.lost();
        let full = self.full.is_some();
        state.warnings.full |= full;
        let failures = state.totals.failures;
        state.totals = Totals { resident, served, lost, full, failures, ..Totals::default() };
    }

    /// Has the kernel resolve all faults from now on.
    fn release(&mut self) {
        self.shared.commons.budget.allow(u64::MAX / PAGE_SIZE_U64);
        let pagers = self.pagers();
        for pager in &pagers {
            pager.find_inherited(None);
            // The pages that could not be given back come back when they are touched.
            pager.release();
        }
        self.full = None;
        let resident = self.shared.resident();
        self.total(resident, pagers.iter().map(|pager| bytes(served_pages(pager))).sum());
    }

    fn pagers(&self) -> Vec<Arc<Pager>> {
        self.shared.state().served.iter().map(|one| Arc::clone(&one.pager)).collect()
    }
}

fn served_pages(pager: &Pager) -> u64 {
    pager.space().resident()
}

/// Forgets pages that the program has thrown away, once they are gone; pages that have not gone by
/// now can be evicted.
fn settle(pager: &Pager, process: u32) {
    let Ok(pagemap) = Pagemap::of(process) else { return };
    let there = |&address: &u64| {
        let page = pagemap.pages(address..address + PAGE_SIZE_U64).ok();
        page.and_then(|pages| pages.first().copied()).is_none_or(|page| page.present())
    };
    pager.settle(
        |addresses| addresses.iter().map(there).collect(),
        || survey::throws_nothing_away(process),
    );
}
