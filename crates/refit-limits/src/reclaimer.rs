//! The reclaimer's rounds: whose memory is served, what of it is counted, and what goes.
//!
//! What may be had is one number for the tree. From it come off what is not served (memory that is mapped since the last round, memory that
//! cannot be served) and what compressed pages take; the rest are the frames of the budget.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refit_memory::PAGE_SIZE;
use refit_memory::program::{AnonymousStats, Pager, STAGING_AREA, Share};
use refit_sys::pagemap::Pagemap;
use refit_sys::process::same_memory;

use crate::served::Served;
use crate::setup::{self, LimitSetup};
use crate::shared::{Shared, Totals, bytes};
use crate::{births, coverage, survey};

const PAGE: u64 = PAGE_SIZE as u64;

/// Between two rounds: while little is used, while much is, and while nothing is limited.
const IDLE: Duration = Duration::from_millis(20);
const BUSY: Duration = Duration::from_millis(4);
/// Between two looks at what processes have in common.
const RARELY: Duration = Duration::from_millis(100);
const FOREVER: Duration = Duration::from_secs(3600);
/// A program whose memory is less than this is not worth serving, in bytes.
const SMALL: u64 = 1 << 20;
/// So much memory that is not counted is worth a look at what is mapped, in bytes.
const UNKNOWN: u64 = 256 << 10;
/// Rounds between two looks at what a program has that cannot be counted, at most.
const LONGEST_REST: u32 = 127;
/// Rounds in which it may not be known yet whose memory it is: a child faults before it is seen.
const UNKNOWN_ROUNDS: u32 = 250;
/// Frames that there are at least, however little is allowed: fewer do not get a program on.
const LEAST: u64 = 64;
/// Rounds without any success until more is allowed than should be.
const FRUITLESS_ROUNDS: u32 = 16;
/// Of the limit, compressed pages may take one part of so many: what they take is missing where pages are used (`bench/RESULTS.md`, paging).
const COMPRESSED: u64 = 8;
/// How long the store is left alone that has taken no more: the disk may have room again.
const AGAIN: Duration = Duration::from_secs(1);
/// Pages that are counted at once.
const AT_ONCE: usize = 512;

/// The thread that sees to frames.
pub(crate) struct Reclaimer {
    shared: Arc<Shared>,
    /// Since when the store takes no more pages: more is allowed than should be.
    full: Option<Instant>,
    /// In how many rounds, one behind the other, frames were short and none could be had.
    vain: u32,
    /// By pager, how many pages had come when frames were short last.
    came: BTreeMap<usize, u64>,
    /// What each process takes if what it has in common with others is shared out: when that was looked up, what it had in all, and the
    /// share.
    shares: BTreeMap<u32, (Instant, u64, u64)>,
}

impl Reclaimer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (came, shares) = (BTreeMap::new(), BTreeMap::new());
        Self { shared, full: None, vain: 0, came, shares }
    }

    /// Goes its rounds until the end.
    pub(crate) fn run(mut self) {
        loop {
            // Pairs with `Shared::short`: who tells from now on is heard in the next round.
            self.shared.short.swap(false, Ordering::AcqRel);
            let limit = self.shared.state().limit;
            let wait = catch_unwind(AssertUnwindSafe(|| match limit {
                Some(limit) => self.round(limit),
                None => {
                    self.release();
                    FOREVER
                }
            }));
            let wait = wait.unwrap_or_else(|_| {
                // A fault of ours, which the log has; nobody is to wait for frames because of it.
                self.shared.state().totals.failures += 1;
                self.shared.commons.budget.allow(u64::MAX / PAGE);
                self.pagers().iter().for_each(|pager| pager.ring());
                IDLE
            });
            // Who cannot be helped now is not helped by going round faster.
            if (self.vain > 0 && self.shared.rest(BUSY)) || self.shared.wait(wait) {
                return;
            }
        }
    }

    fn round(&mut self, limit: u64) -> Duration {
        self.shared.commons.store.allow(limit / COMPRESSED);
        // One batch shows whether it still takes none; that is known before this round is over.
        self.full.take_if(|since| since.elapsed() >= AGAIN);
        let processes = self.shared.supervisor.process_numbers();
        self.shared.state().refused.retain(|process, _| processes.contains(process));
        self.forget_gone();
        self.free_unknown();
        let mut all: Vec<(u32, u64)> =
            processes.iter().map(|&process| (process, survey::resident(process))).collect();
        self.leave_out_borrowers(&mut all);
        let resident = self.together(&all);
        if resident > limit / 2 || !self.shared.state().served.is_empty() {
            for &(process, resident) in all.iter().filter(|(_, resident)| *resident > SMALL) {
                self.begin(process);
                self.count(process, resident, limit);
            }
        }
        let served = self.allow(limit, resident);
        self.evict();
        self.total(resident, served);
        if resident > limit / 4 { BUSY } else { IDLE }
    }

    /// What processes take in all: what a parent has in common with its children counts once.
    fn together(&mut self, all: &[(u32, u64)]) -> u64 {
        let mut sum = 0;
        let several = all.iter().filter(|(_, resident)| *resident > SMALL).count() > 1;
        for &(process, resident) in all {
            sum += match self.shares.get(&process) {
                _ if !several || resident <= SMALL => resident,
                // A share is looked up rarely; meanwhile it grows and shrinks as the whole does.
                Some(&(when, whole, share)) if when.elapsed() < RARELY => {
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

    /// Pagers whose memory is nobody's any more end.
    fn forget_gone(&self) {
        let mut state = self.shared.state();
        // Of others the tree tells.
        let gone = |one: &mut Served| {
            let place = one.place();
            one.process.is_none() && !one.pager.alive(&(place..place + PAGE))
        };
        state.end(gone);
    }

    /// Gives the memory back of processes that nobody follows: they would outlive what serves them. All that are followed are known from
    /// their birth, as long as there are marks for it.
    fn free_unknown(&self) {
        let mut unknown = Vec::new();
        for one in self.shared.state().served.iter_mut().filter(|one| one.process.is_none()) {
            one.unknown += 1;
            if one.unknown > UNKNOWN_ROUNDS {
                unknown.push(Arc::clone(&one.pager));
            }
        }
        for pager in unknown {
            // Nothing comes back to a child that is not its own.
            if !pager.find_inherited(None) {
                continue;
            }
            // What it takes comes off from what the others may have.
            self.shared.commons.budget.allow(u64::MAX / PAGE);
            if pager.release() {
                self.shared.state().end(|one| Arc::ptr_eq(&one.pager, &pager));
            }
        }
    }

    /// Processes that have another's memory, for as long as they are not programs of their own (`vfork`), are not counted twice.
    fn leave_out_borrowers(&self, all: &mut Vec<(u32, u64)>) {
        let mut seen: Vec<(u32, u64)> = Vec::new();
        all.retain(|&(process, resident)| {
            let as_much = seen.iter().filter(|(_, other)| resident.abs_diff(*other) < SMALL);
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

    /// Serves a program from now on, if it is not served already.
    fn begin(&self, process: u32) {
        let known = {
            let mut state = self.shared.state();
            // Before anything is: that it has ended or become another from now on is known when it is served.
            state.planting = Some(process);
            if state.refused.contains_key(&process)
                || state.served.iter().any(|one| one.process == Some(process) && one.pager.moored())
            {
                return;
            }
            // One that was planted into is known; so is a child from its birth, as long as there are marks.
            let known = state.served.iter().find(|one| one.process == Some(process));
            let known = known.map(|one| Arc::clone(&one.pager));
            known.or_else(|| state.identify(process))
        };
        known.iter().for_each(|pager| births::settle(pager, process));
        let userfault = known.as_ref().map(|pager| Arc::clone(pager.userfault()));
        let begun = setup::set_up(&self.shared.supervisor, process, userfault)
            .and_then(|installed| self.attach_staging_area(process, known, installed));
        match begun {
            // In the next round.
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
        // From now on there come no more.
        let guarded = survey::is_guarded(process)?;
        if let Some(pager) = known {
            pager.attach_staging_area(staging_area, &marks)?;
            let mut state = self.shared.state();
            if state.planting != Some(process) {
                // Its pager was ended before there was anything to be ended with it.
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
            rest: (0, 0),
            unknown: 0,
        })?;
        let mut state = self.shared.state();
        if state.planting != Some(process) {
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
            // One that is refused is about to be served no more.
            let Some(one) = found.filter(|_| !state.refused.contains_key(&process)) else {
                return;
            };
            (Arc::clone(&one.pager), one.areas.clone(), one.shares(), one.guarded)
        };
        settle(&pager, process);
        // What there are no frames for comes in one of the next rounds.
        pager.leave_to_kernel();
        if resident.saturating_sub(bytes(served_pages(&pager))) < UNKNOWN || !self.rested(process) {
            return;
        }
        // What is counted now has come off already from what there is.
        self.shared.commons.budget.allow((limit / PAGE).max(LEAST));
        // What has ended meanwhile is not counted.
        let counted = || {
            let all = coverage::cover(&pager, process, &areas, guarded)?;
            self.count_all(&pager, process, all, shared)
        };
        let found = counted().unwrap_or(0);
        let mut state = self.shared.state();
        if let Some(one) = state.served.iter_mut().find(|one| one.process == Some(process)) {
            // What cannot be counted, be it shared with others or not to be served, is still there next time.
            let rest =
                if bytes(found) < UNKNOWN { (2 * one.rest.1 + 1).min(LONGEST_REST) } else { 0 };
            one.rest = (rest, rest);
        }
    }

    /// Whether a process is to be looked at in this round.
    fn rested(&self, process: u32) -> bool {
        let mut state = self.shared.state();
        let Some(one) = state.served.iter_mut().find(|one| one.process == Some(process)) else {
            return false;
        };
        let rested = one.rest.0 == 0;
        one.rest.0 = one.rest.0.saturating_sub(1);
        rested
    }

    /// How many pages were found that were not counted.
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
                let counted = pager.adopt(&left[..left.len().min(AT_ONCE)]);
                left = &left[counted..];
                if counted < AT_ONCE && !left.is_empty() {
                    let freed = pager.evict(STAGING_AREA).unwrap_or(0);
                    evicted += freed as u64;
                    stuck = if freed + counted == 0 { stuck + 1 } else { 0 };
                }
            }
        }
        Ok((served_pages(pager) + evicted).saturating_sub(before))
    }

    /// Says how many frames there are; how many bytes are served.
    fn allow(&self, limit: u64, resident: u64) -> u64 {
        let served: u64 = self.pagers().iter().map(|pager| bytes(served_pages(pager))).sum();
        let compressed = self.shared.commons.store.stats().compressed_bytes;
        let apart = resident.saturating_sub(served) + compressed;
        let frames =
            if self.full.is_some() { u64::MAX / PAGE } else { limit.saturating_sub(apart) / PAGE };
        // Where what cannot be taken out is too much already, the limit cannot be kept: it would only bring all to a standstill.
        let least = LEAST * self.pagers().len() as u64 + limit / PAGE / 16;
        let budget = self.shared.commons.budget;
        // Nor is anybody to wait for ever where pages that could go do not.
        let more = if self.vain < FRUITLESS_ROUNDS { 0 } else { budget.stats().taken + LEAST };
        budget.allow(frames.max(least).max(more));
        served
    }

    /// Has pages go until frames are free.
    fn evict(&mut self) {
        let pagers = self.pagers();
        let short = || {
            let stats = self.shared.commons.budget.stats();
            stats.free() < stats.reserve()
        };
        self.vain = match short() && !self.free_frames(&pagers) {
            true => self.vain.saturating_add(1),
            false => 0,
        };
        // Also those that nothing can be taken out of may wait for frames.
        pagers.iter().for_each(|pager| pager.ring());
    }

    /// Takes pages of programs that can spare some, then of those that have to give; whether any have gone, or none
    /// need to or ever can.
    fn free_frames(&mut self, pagers: &[Arc<Pager>]) -> bool {
        let budget = self.shared.commons.budget;
        let pagers: Vec<_> = pagers.iter().filter(|pager| pager.moored()).collect();
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
            // Who has no more to give is passed over, or nobody would find out that there is nothing.
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

    /// What programs have of the frames, and what has come to them since this was asked last.
    fn shares_of(&mut self, pagers: &[&Arc<Pager>]) -> Vec<Share> {
        let mut came = BTreeMap::new();
        let mut share = |pager: &&Arc<Pager>| {
            let AnonymousStats { resident, faults, around, .. } = pager.space().stats();
            let name = Arc::as_ptr(pager) as usize;
            came.insert(name, faults + around);
            let before = self.came.get(&name).copied().unwrap_or(0);
            Share { resident, came: (faults + around).saturating_sub(before) }
        };
        let shares = pagers.iter().map(&mut share).collect();
        self.came = came;
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

    /// The kernel resolves all faults from now on.
    fn release(&mut self) {
        self.shared.commons.budget.allow(u64::MAX / PAGE);
        let pagers = self.pagers();
        for pager in &pagers {
            pager.find_inherited(None);
            // What could not be given back is asked for one by one.
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

/// Pages that the program has thrown away are forgotten when they are gone; those that have not gone by now can be evicted.
fn settle(pager: &Pager, process: u32) {
    let Ok(pagemap) = Pagemap::of(process) else { return };
    let there = |&address: &u64| {
        let page = pagemap.pages(address..address + PAGE).ok();
        page.and_then(|pages| pages.first().copied()).is_none_or(|page| page.present())
    };
    pager.settle(
        |addresses| addresses.iter().map(there).collect(),
        || survey::throws_nothing_away(process),
    );
}
