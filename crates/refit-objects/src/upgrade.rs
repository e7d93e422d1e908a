//! Upgrades of a class: all of its objects are swapped, and new ones get the new implementation, or
//! nothing changes (Soules 2003, §7.1; K42's factory stops at the first object that fails and
//! leaves the class half upgraded).
//!
//! First the factories switch to the new implementation. Then the objects are swapped in batches of
//! [`BATCH`]: all mediators of a batch are installed, and *one* generation passes for all of them.
//! After that each object blocks its calls only for its own transfer. An object that fails ends the
//! upgrade: the factories switch back, and all objects that were upgraded or created in the
//! meantime are swapped back. Until the end each object is entirely old or entirely new.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use refit_change::{Change, ChangeId, End, Phase, Report, Timeline};

use refit_sys::thread::Urgent;
use tracing::{debug, debug_span};

use crate::class::{UPGRADING, made_by};
use crate::maker::{Maker, Serves, makers_of};
use crate::mediation::Tally;
use crate::pace::sleep_until;
use crate::request::in_request;
use crate::retire::{advance, retire};
use crate::slot::Slot;
use crate::swap::each_once;
use crate::swap_options::{REQUESTER_GONE, SwapOptions};
use crate::switch::{Abort, Ended, Member, Switch};

/// The number of objects that share one generation.
const BATCH: usize = 64;

/// The number of attempts to swap an object back, with a deadline that doubles.
const WAYS_BACK: u32 = 6;

/// The options of an upgrade.
#[derive(Clone, Debug, Default)]
pub struct UpgradeOptions {
    /// The options for each object; the deadline is that of one batch.
    pub swap: SwapOptions,
    /// The maximum number of objects per second.
    pub rate: Option<f64>,
    /// The handle by which others follow and pause it.
    pub control: Arc<UpgradeControl>,
}

/// A handle to follow and pause an upgrade.
#[derive(Debug, Default)]
pub struct UpgradeControl {
    paused: AtomicBool,
    done: AtomicUsize,
    total: AtomicUsize,
}

impl UpgradeControl {
    /// Pauses the upgrade after the current batch, or resumes it. During the pause some objects are
    /// old and some are new.
    pub fn pause(&self, paused: bool) {
        // Relaxed, like everything here: no other load depends on it.
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Returns whether it is paused.
    pub fn paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Returns the number of objects that have been swapped, and of all that will be.
    pub fn progress(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// Swaps all objects of a class to an implementation, which new objects get, too.
pub fn upgrade(class: &str, to: &str, change: ChangeId, options: &UpgradeOptions) -> Report {
    let _upgrade = debug_span!("upgrade", change, class, to).entered();
    let report = attempt(class, to, change, options);
    debug!(objects = report.objects, end = ?report.end, "ended");
    report
}

fn attempt(class: &str, to: &str, change: ChangeId, options: &UpgradeOptions) -> Report {
    let owner = &options.swap.owner;
    let makers = makers_of(class);
    let from = each_once(makers.iter().map(|maker| maker.serving()).collect());
    let change = Change::new(change, "upgrade", class, &from, to, owner);
    let refused = |change, why: &str| Report::refused(change, why);
    if makers.is_empty() {
        return refused(change, &format!("there is no class {class:?} with a factory"));
    }
    if in_request() {
        let why = "it was asked for from within a request, which it would have to wait for";
        return refused(change, why);
    }
    if options.swap.dry_run {
        return refused(
            change,
            "an upgrade has no dry run; rehearse the swap of one of its objects",
        );
    }
    let cancelled = || options.swap.cancelled();
    let Some(_ticket) = UPGRADING.take(options.swap.deadline, &cancelled) else {
        return refused(change, "another upgrade did not end before the deadline");
    };
    if let Some(why) = made_by(&makers).iter().find_map(|slot| slot.swapper.cannot(to)) {
        return refused(change, &why);
    }
    let upgrade = Upgrade {
        to,
        options,
        before: makers.iter().map(|maker| maker.serve(to)).collect(),
        makers,
        began: Instant::now(),
        tally: Tally::default(),
        done: Vec::new(),
    };
    upgrade.run(change)
}

/// An upgrade in progress.
struct Upgrade<'a> {
    to: &'a str,
    options: &'a UpgradeOptions,
    makers: Vec<Arc<Maker>>,
    /// The previous implementation of each of `makers`.
    before: Vec<Serves>,
    began: Instant,
    tally: Tally,
    /// The objects that have been swapped, and their previous implementations.
    done: Vec<(Arc<Slot>, String)>,
}

impl Upgrade<'_> {
    fn run(mut self, change: Change) -> Report {
        let mut timeline = Timeline::begin();
        timeline.enter(Phase::Transfer);
        let (mut blockers, mut late) = (Vec::new(), false);
        let end = match self.forward() {
            Ok(()) => {
                timeline.enter(Phase::Commit);
                End::Committed
            }
            Err(given_up) => {
                debug!(why = given_up.why, "rolls back");
                timeline.enter(Phase::RollBack);
                blockers = given_up.blockers;
                late = given_up.late;
                End::RolledBack(given_up.why + &self.back())
            }
        };
        Report {
            phases: timeline.end(),
            end,
            forwarded: self.tally.forwarded,
            blocked: self.tally.blocked,
            longest_block_ns: self.tally.longest_block_ns,
            blockers,
            objects: self.done.len() as u64,
            late,
            ..Report::refused(change, "")
        }
    }

    /// Swaps every object that does not have the new implementation yet.
    fn forward(&mut self) -> Result<(), Abort> {
        let old = |slot: &Arc<Slot>| slot.root().implementation() != self.to;
        let slots: Vec<_> = made_by(&self.makers).into_iter().filter(old).collect();
        self.options.control.total.store(slots.len(), Ordering::Relaxed);
        debug!(objects = slots.len(), "new objects get it, and the present ones are swapped");
        for batch in slots.chunks(self.batch_size()) {
            self.keep_pace()?;
            let mut swapped = Vec::with_capacity(batch.len());
            let result = swap_batch(
                batch.iter().map(|slot| (slot, self.to)),
                &self.options.swap,
                &mut swapped,
                &mut self.tally,
            );
            self.done.append(&mut swapped);
            self.options.control.done.store(self.done.len(), Ordering::Relaxed);
            debug!(done = self.done.len(), of = slots.len(), "a batch ended");
            result?;
        }
        Ok(())
    }

    /// Returns the size of a batch. With a rate, a batch has at most the objects of a tenth of a
    /// second, so that the upgrade proceeds evenly.
    fn batch_size(&self) -> usize {
        let tenth = self.options.rate.map_or(BATCH, |rate| (rate / 10.0) as usize);
        tenth.clamp(1, BATCH)
    }

    /// Waits while it is paused, and until the rate allows the next batch.
    fn keep_pace(&mut self) -> Result<(), Abort> {
        const LOOK: Duration = Duration::from_millis(5);
        let UpgradeOptions { swap, rate, control } = self.options;
        let stop = || swap.cancelled() || control.paused();
        loop {
            let due = match rate {
                Some(rate) if *rate > 0.0 => {
                    let after = Duration::try_from_secs_f64(self.done.len() as f64 / rate);
                    after.ok().and_then(|after| self.began.checked_add(after))
                }
                _ => Some(self.began),
            };
            if sleep_until(due, LOOK, &stop) {
                return Ok(());
            }
            let paused = Instant::now();
            sleep_until(None, LOOK, &|| swap.cancelled() || !control.paused());
            if swap.cancelled() {
                return Err(Abort::because(REQUESTER_GONE));
            }
            // The upgrade does not hurry to make up for the pause.
            self.began += paused.elapsed();
        }
    }

    /// Undoes everything. Returns an addition to the reason if some objects could not be swapped
    /// back.
    fn back(&mut self) -> String {
        let mut way_back: Vec<(Arc<Slot>, String)> = std::mem::take(&mut self.done);
        for (maker, before) in self.makers.iter().zip(&self.before) {
            let new = maker.serve(&before.implementation).since;
            let made_meanwhile = |slot: &Arc<Slot>| {
                let origin = slot.origin.as_ref();
                origin.is_some_and(|o| o.since > before.since && o.since <= new)
            };
            let made = made_by(std::slice::from_ref(maker)).into_iter().filter(made_meanwhile);
            way_back.extend(made.map(|slot| (slot, before.implementation.clone())));
        }
        way_back.sort_by_key(|(slot, _)| slot.id);
        way_back.dedup_by_key(|(slot, _)| slot.id);
        let mut options = SwapOptions { cancel: None, hook: None, ..self.options.swap.clone() };
        for _ in 0..WAYS_BACK {
            let mut left = Vec::new();
            for batch in way_back.chunks(BATCH) {
                let members = batch.iter().map(|(slot, to)| (slot, to.as_str()));
                // Failures are detected by the implementation that still serves.
                let _ = swap_batch(members, &options, &mut Vec::new(), &mut self.tally);
                let still = |(slot, to): &&(Arc<Slot>, String)| {
                    !slot.doomed() && slot.root().implementation() != *to
                };
                left.extend(batch.iter().filter(still).cloned());
            }
            if left.is_empty() {
                return String::new();
            }
            way_back = left;
            options.deadline *= 2;
        }
        let names: Vec<_> = way_back.iter().take(5).map(|(slot, _)| slot.full_name()).collect();
        let (many, names) = (way_back.len(), names.join(", "));
        format!("; {many} objects could NOT be swapped back, among them {names}")
    }
}

/// Swaps some objects, in the order of their ids, and appends those that were swapped, with their
/// previous implementations, to `swapped`. It stops at the first that fails; the earlier ones stay
/// swapped.
fn swap_batch<'a>(
    objects: impl Iterator<Item = (&'a Arc<Slot>, &'a str)>,
    options: &SwapOptions,
    swapped: &mut Vec<(Arc<Slot>, String)>,
    tally: &mut Tally,
) -> Result<(), Abort> {
    let began = Instant::now();
    let mut tickets = Vec::new();
    let (mut switches, mut lazy) = (Vec::new(), Vec::new());
    for (slot, to) in objects {
        let left = options.deadline.saturating_sub(began.elapsed());
        let Some(ticket) = slot.changing().take(left, &|| options.cancelled()) else {
            let name = slot.full_name();
            let why = format!("{name}: another change of it did not end before the deadline");
            return Err(Abort::because(why));
        };
        tickets.push(ticket);
        let from = slot.root().implementation();
        if slot.destroyed() || from == to {
            continue;
        }
        let because = |why| Abort::because(format!("{}: {why}", slot.full_name()));
        let member = Member::by_name(slot, to, options.clustering.clone()).map_err(because)?;
        let moving = member.moving();
        moving.agree(options).map_err(|none| because(none.to_string()))?;
        lazy.extend(moving.lazy().then_some(moving));
        switches.push((Arc::clone(slot), from, Switch::new(vec![member], options, began)));
    }
    // Other threads wait for all steps from here on.
    let urgent = options.urgent.then(Urgent::begin);
    let mut installed = Vec::with_capacity(switches.len());
    for (slot, from, mut switch) in switches {
        let result = switch.install();
        installed.push((slot, from, switch, result));
    }
    let generation = advance();
    let mut garbage = Vec::with_capacity(installed.len());
    let mut failed: Option<Abort> = None;
    for (slot, from, switch, result) in installed {
        let stop = || Err(Abort::because("another object of the batch could not be swapped"));
        let result = if failed.is_some() { stop() } else { result.map(|()| generation) };
        let ended: Ended = switch.finish(result);
        garbage.push(ended.garbage);
        tally.add(ended.tally);
        match ended.result {
            Ok(()) => swapped.push((slot, from)),
            // An object that is being destroyed needs no swap.
            Err(_) if ended.target_gone => {}
            Err(given_up) => failed = failed.or(Some(of_object(&slot, given_up))),
        }
    }
    retire(Box::new(garbage));
    drop(urgent);
    for moving in lazy {
        // An object that was not swapped has nothing to drain.
        moving.drain(&options.drain, &|| options.cancelled());
    }
    failed.map_or(Ok(()), Err)
}

fn of_object(slot: &Slot, given_up: Abort) -> Abort {
    Abort { why: format!("{}: {}", slot.full_name(), given_up.why), ..given_up }
}
