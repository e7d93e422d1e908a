//! The switch: one implementation takes over from another, in one object or in several at once,
//! while they are called (Hui 2000, §4.3; Soules 2003, §4.3.2).
//!
//! | phase | action | effect on calls |
//! |---|---|---|
//! | prepare | the new roots and the mediators are created | nothing |
//! | install (forward) | mediators replace roots, entries flushed | a miss per CPU; tracking |
//! | quiesce (block) | the swapper waits until no tracked call is inside | new calls wait |
//! | transfer | each old root exports, its new one imports | the same |
//! | commit | new roots replace mediators, entries flushed | a miss per CPU |
//!
//! At the end of install, the swapper waits until every request that began before has ended. After
//! the commit, waiting calls continue.
//!
//! The switch can be given up at any point before the commit: when its deadline passes, its
//! requester goes away, an object is about to be destroyed, export or import fails or panics, or a
//! hook fails. Then the old roots replace the mediators, waiting calls continue in them, and
//! nothing is lost, because export leaves the old root able to continue and no call has reached the
//! new one.
//!
//! # Several objects as one change
//!
//! The members share one [`Mediation`], which tracks not calls but whole requests
//! ([`Unit::Request`]): a request that has called one member continues in the old roots of all of
//! them until it ends. *No request sees a mix of old and new:*
//!
//! * A request that began before the last mediator was installed, and has called nothing yet that
//!   tracks it, sees old roots only. The switch waits for it (the generation) before it blocks any
//!   call.
//! * A tracked request sees old roots only, and the switch waits for it (the ledgers) before the
//!   transfer.
//! * Any other request calls its first member while calls are blocked, and continues when all new
//!   roots are in place; or it finds a new root directly. Then the commit has begun, no member
//!   offers its old root any more, and a member that still has its mediator makes the request wait
//!   until that is replaced.
//!
//! When a switch is rolled back, the same holds with old and new exchanged: the new roots have
//! never been in place.
//!
//! # Events
//!
//! The steps of a swap are `tracing` events, except in an upgrade, which records its batches. No
//! event is recorded while calls wait: if the log lies on a mount of this process, writing to it
//! calls objects, and these calls may be the ones that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use refit_change::{Blocker, Change, End, Phase, Report, Timeline};

use refit_sys::thread::Urgent;
use tracing::debug;

use crate::attached::AnyRoot;
use crate::clustering::Clustering;
use crate::generation::Caller;
use crate::id::ObjectId;
use crate::interface::{Interface, Root};
use crate::mediation::{Mediation, Outcome, Tally};
use crate::mediator::{Mediator, SwitchNumber, Unit};
use crate::registry;
use crate::retire::{GENERATIONS, advance, defer};
use crate::slot::Slot;
use crate::successor::Successor;
use crate::swap_options::{REQUESTER_GONE, SwapOptions};
use crate::ticket::Backoff;
use crate::transfer::moving::{TransferFailure, Transferring};

/// The number of switches that will be urgent from the beginning, if no call arrives in the
/// meantime.
static URGENT_YET: AtomicU32 = AtomicU32::new(0);

/// The value of that number after a switch during which a call arrived: the object is in use then,
/// and probably the next one is too.
const URGENT_AFTER: u32 = 1024;

/// An object to switch, and its new root. The creator of this value holds the right to change the
/// object.
pub(crate) struct Member {
    slot: Arc<Slot>,
    old: Arc<dyn AnyRoot>,
    new: Arc<dyn AnyRoot>,
    moving: Arc<dyn Transferring>,
}

impl Member {
    /// Creates a member; `None` if the object has another interface.
    pub(crate) fn new<I: Interface>(
        slot: &Arc<Slot>,
        root: Box<dyn Root<I>>,
        clustering: Clustering,
    ) -> Option<Self> {
        let old = slot.root();
        let successor = Successor::new(slot.id, &old, root, clustering)?;
        Some(Self::of(slot, old, successor))
    }

    /// Creates a member whose new root is of the implementation with this name; the error says why
    /// that failed.
    pub(crate) fn by_name(
        slot: &Arc<Slot>,
        to: &str,
        clustering: Clustering,
    ) -> Result<Self, String> {
        let old = slot.root();
        let successor = slot.swapper.successor(slot.id, &old, to, clustering)?;
        Ok(Self::of(slot, old, successor))
    }

    fn of(slot: &Arc<Slot>, old: Arc<dyn AnyRoot>, successor: Successor) -> Self {
        let Successor { root: new, moving } = successor;
        Member { slot: Arc::clone(slot), old, new, moving }
    }

    /// Returns the transfer of its state, for the negotiation before the switch and the report
    /// after it.
    pub(crate) fn moving(&self) -> Arc<dyn Transferring> {
        Arc::clone(&self.moving)
    }

    /// Returns the name of the current implementation.
    pub(crate) fn from(&self) -> String {
        self.old.implementation()
    }

    /// Returns the name of the new implementation.
    pub(crate) fn to(&self) -> String {
        self.new.implementation()
    }

    pub(crate) fn object(&self) -> String {
        self.slot.full_name()
    }
}

/// The reason that a switch is given up.
#[derive(Debug)]
pub(crate) struct Abort {
    pub(crate) why: String,
    pub(crate) blockers: Vec<Blocker>,
    /// Whether the deadline has passed, in which case another attempt may succeed.
    pub(crate) late: bool,
    /// Whether it was a dry run that has reached its end.
    pub(crate) rehearsed: bool,
}

impl Abort {
    pub(crate) fn because(why: impl Into<String>) -> Self {
        Abort { why: why.into(), blockers: Vec::new(), late: false, rehearsed: false }
    }
}

/// A switch in progress.
pub(crate) struct Switch<'a> {
    members: Vec<Member>,
    mediators: Vec<Arc<Mediator>>,
    mediation: Arc<Mediation>,
    options: &'a SwapOptions,
    /// `None` if the deadline is beyond the range of the clock.
    until: Option<Instant>,
    timeline: Timeline,
    /// Held from the moment at which a call to a member is noticed, or from the beginning.
    urgent: Option<Urgent>,
    /// Whether any call was noticed.
    called: bool,
    /// Whether its steps are recorded as events.
    recorded: bool,
}

/// The remains of a switch, which the caller has to retire, in batches if there are many.
pub(crate) struct Ended {
    pub(crate) result: Result<(), Abort>,
    pub(crate) tally: Tally,
    pub(crate) timeline: Timeline,
    pub(crate) target_gone: bool,
    /// Objects that are unreachable, but may still be in use.
    pub(crate) garbage: Box<dyn Send>,
}

impl<'a> Switch<'a> {
    pub(crate) fn new(members: Vec<Member>, options: &'a SwapOptions, began: Instant) -> Self {
        let mediation = Arc::new(Mediation::new(refit_sys::processor::count()));
        let unit = if members.len() == 1 { Unit::Call } else { Unit::Request };
        let number = SwitchNumber::next();
        let mediators = members.iter().map(|member| {
            let roots = [Arc::clone(&member.old), Arc::clone(&member.new)];
            Mediator::new(number, &member.slot, unit, Arc::clone(&mediation), roots)
        });
        Switch {
            mediators: mediators.collect(),
            members,
            mediation,
            options,
            until: began.checked_add(options.deadline),
            timeline: Timeline::begin(),
            urgent: None,
            called: false,
            recorded: false,
        }
    }

    /// Runs all phases, and records them.
    pub(crate) fn run(mut self, change: Change) -> Report {
        self.recorded = true;
        // Not when it is created: an upgrade creates many, and is urgent itself.
        let urgent = self.options.urgent && URGENT_YET.load(Ordering::Relaxed) > 0;
        self.urgent = urgent.then(Urgent::begin);
        let members = self.members.len() as u64;
        let installed = self.install().and_then(|()| {
            debug!("forward: calls go through the mediator");
            let generation = advance();
            self.check(Phase::Install).map(|()| generation)
        });
        let Ended { result, tally, timeline, target_gone, garbage } = self.finish(installed);
        debug!("retire: what calls used until now is freed when they have ended");
        // Not `retire`: the next change has its own barrier, and includes this.
        defer(garbage);
        let (end, blockers, late) = match result {
            Ok(()) => (End::Committed, Vec::new(), false),
            Err(Abort { rehearsed: true, .. }) => (End::Rehearsed, Vec::new(), false),
            Err(Abort { why, blockers, late, .. }) => (End::RolledBack(why), blockers, late),
        };
        Report {
            phases: timeline.end(),
            end,
            forwarded: tally.forwarded,
            blocked: tally.blocked,
            longest_block_ns: tally.longest_block_ns,
            blockers,
            target_gone,
            objects: members,
            late,
            ..Report::refused(change, "")
        }
    }

    /// Installs the mediators. Afterwards the generation has to be advanced.
    pub(crate) fn install(&mut self) -> Result<(), Abort> {
        self.check(Phase::Prepare)?;
        self.timeline.enter(Phase::Install);
        for (member, mediator) in self.members.iter().zip(&self.mediators) {
            member.slot.swing_root(Arc::clone(mediator) as Arc<dyn AnyRoot>);
        }
        Ok(())
    }

    /// Runs everything after the install; `installed` is the generation that began then.
    pub(crate) fn finish(mut self, installed: Result<u64, Abort>) -> Ended {
        let result = installed.and_then(|generation| self.up_to_commit(generation));
        let (phase, outcome) = match result {
            Ok(()) => (Phase::Commit, Outcome::New),
            Err(_) => (Phase::RollBack, Outcome::Old),
        };
        let transferring = self.timeline.phase() == Phase::Transfer;
        self.hand_over(phase, outcome);
        self.record_end(transferring, outcome);
        let target_gone = result.is_err() && self.members.iter().any(|m| m.slot.doomed());
        let loser = |member: Member| match outcome {
            Outcome::New => member.old,
            Outcome::Old => member.new,
        };
        let losers: Vec<_> = self.members.into_iter().map(loser).collect();
        let tally = self.mediation.tally();
        remember(self.called || tally.forwarded + tally.blocked > 0);
        Ended {
            result,
            tally,
            timeline: self.timeline,
            target_gone,
            garbage: Box::new((self.mediators, losers)),
        }
    }

    fn up_to_commit(&mut self, generation: u64) -> Result<(), Abort> {
        self.forward(generation)?;
        if self.recorded {
            debug!("block: new calls wait until all others have ended");
        }
        self.block()?;
        self.timeline.enter(Phase::Transfer);
        self.check(Phase::Transfer)?;
        for member in &self.members {
            let whose =
                || if self.members.len() > 1 { member.object() + ": " } else { String::new() };
            let give_up = |now| self.in_time(now).is_err();
            match Arc::clone(&member.moving).run(&give_up) {
                Ok(()) => {}
                Err(TransferFailure::Failed(error)) => {
                    return Err(Abort::because(format!("{}transfer failed: {error}", whose())));
                }
                Err(TransferFailure::GivenUp { thread }) => {
                    return Err(self.without(&whose(), thread));
                }
            }
        }
        // The last point at which it can be given up.
        self.check(Phase::Commit)?;
        if self.options.dry_run {
            return Err(Abort { rehearsed: true, ..Abort::because("it was a dry run") });
        }
        Ok(())
    }

    /// Returns the reason for giving up the switch while a step of the transfer runs in `thread`.
    fn without(&self, whose: &str, thread: u32) -> Abort {
        let reason = self.in_time(Instant::now()).err();
        let reason = reason.unwrap_or_else(|| Abort::because("it was given up"));
        let why = format!(
            "{}; {whose}the transfer has not returned: it is left alone in thread {thread}, and what it brings is not used",
            reason.why
        );
        Abort { why, ..reason }
    }

    /// Waits until every call that the mediators do not know has ended.
    fn forward(&mut self, generation: u64) -> Result<(), Abort> {
        let since = self.timeline.since();
        let mut backoff = Backoff::default();
        while !GENERATIONS.passed(generation) {
            self.hurry();
            if let Err(mut given_up) = self.in_time(Instant::now()) {
                let stragglers = GENERATIONS.stragglers(generation);
                given_up.blockers =
                    stragglers.iter().map(|s| blocker(*s, since.elapsed())).collect();
                return Err(given_up);
            }
            backoff.wait();
        }
        Ok(())
    }

    /// Makes new calls wait, and waits until all tracked ones have left.
    fn block(&mut self) -> Result<(), Abort> {
        if self.mediation.in_use() {
            self.hurry();
        }
        self.timeline.enter(Phase::Quiesce);
        self.mediation.block();
        self.check(Phase::Quiesce)?;
        let mut backoff = Backoff::default();
        while !self.mediation.drained() {
            if let Err(mut given_up) = self.in_time(Instant::now()) {
                let tracked = self.mediation.tracked();
                given_up.blockers = tracked.iter().map(|t| blocker(t.caller, t.age())).collect();
                return Err(given_up);
            }
            backoff.wait();
        }
        Ok(())
    }

    /// Replaces the mediator of each member by one of its two roots, in which blocked calls
    /// continue.
    fn hand_over(&mut self, phase: Phase, outcome: Outcome) {
        self.timeline.enter(phase);
        for member in &self.members {
            Arc::clone(&member.moving).let_go(outcome);
        }
        for member in &self.members {
            member.slot.swing_root(Arc::clone(match outcome {
                Outcome::New => &member.new,
                Outcome::Old => &member.old,
            }));
        }
        self.mediation.complete(outcome);
    }

    /// Records the steps during which calls waited, and that they continue.
    fn record_end(&self, transferring: bool, outcome: Outcome) {
        if !self.recorded {
            return;
        }
        if transferring {
            debug!("transfer: it ended, while calls waited");
        }
        match outcome {
            Outcome::New => debug!("commit: calls go to the new implementation"),
            Outcome::Old => debug!("roll back: calls go to the old implementation"),
        }
    }

    /// Becomes urgent, because calls are about to wait for all steps from here on.
    fn hurry(&mut self) {
        self.called = true;
        if self.options.urgent {
            self.urgent.get_or_insert_with(Urgent::begin);
        }
    }

    fn check(&self, phase: Phase) -> Result<(), Abort> {
        let Some(hook) = &self.options.hook else {
            // Reading the clock takes as long as a phase without any calls.
            return self.in_time(self.timeline.since());
        };
        hook(phase).map_err(Abort::because)?;
        self.in_time(Instant::now())
    }

    fn in_time(&self, now: Instant) -> Result<(), Abort> {
        if self.options.cancelled() {
            return Err(Abort::because(REQUESTER_GONE));
        }
        if let Some(doomed) = self.members.iter().find(|member| member.slot.doomed()) {
            let which = if self.members.len() > 1 { doomed.object() } else { "the object".into() };
            return Err(Abort::because(format!("{which} is being destroyed")));
        }
        match self.until {
            Some(until) if now >= until => {
                let deadline = self.options.deadline;
                let why = format!("the deadline of {deadline:?} passed");
                Err(Abort { late: true, ..Abort::because(why) })
            }
            _ => Ok(()),
        }
    }
}

/// Remembers whether the next switches should be urgent from the beginning.
fn remember(called: bool) {
    // Relaxed, and not atomic as a whole: it is a guess.
    let yet = URGENT_YET.load(Ordering::Relaxed);
    let yet = if called { URGENT_AFTER } else { yet.saturating_sub(1) };
    URGENT_YET.store(yet, Ordering::Relaxed);
}

fn blocker(caller: Caller, age: Duration) -> Blocker {
    let Caller { tid, object, method } = caller;
    let slot = |object| registry::get(ObjectId::from_bits(object));
    let name = |slot: Option<Arc<Slot>>| slot.map_or_else(String::new, |s| s.full_name());
    let called = slot(object);
    let method = called.as_ref().and_then(|s| s.interface.methods.get(usize::from(method)));
    Blocker {
        tid,
        thread: refit_sys::thread::name(tid),
        method: method.map_or("", |m| m.name).to_owned(),
        object: name(called),
        age_us: u64::try_from(age.as_micros()).unwrap_or(u64::MAX),
        waits_for: name(slot(GENERATIONS.waits_for(tid))),
    }
}
