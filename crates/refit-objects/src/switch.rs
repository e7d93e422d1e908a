//! The switch: one implementation takes over from another, in one object or in several at once, while they are called
//! (Hui 2000, §4.3; Soules 2003, §4.3.2).
//!
//! | phase | what happens | what calls notice |
//! |---|---|---|
//! | prepare | the new roots are made, the mediators too | nothing |
//! | install (forward) | the mediators take the roots' places, entries are flushed; the swapper waits until every request that began before has ended | one miss per processor, then tracking |
//! | quiesce (block) | the swapper waits until nothing tracked is inside | new calls wait |
//! | transfer | each old root exports, its new one imports | the same |
//! | commit | the new roots take the mediators' places, entries are flushed, waiting calls go on | one miss per processor |
//!
//! At any point before commit the switch can be given up: its deadline passes, its requester goes away, an object is to
//! be destroyed, import or export fails or panics, a hook says no. Then the old roots take the mediators' places,
//! waiting calls go on in them, and nothing is lost, because export leaves the old root able to carry on and nobody
//! has called the new one.
//!
//! # Several objects as one change
//!
//! The members share one [`Mediation`], and what it tracks is not the call but the whole request ([`Unit::Request`]):
//! a request that has called one member goes on in the old roots of all of them until it ends. *No request sees a mix
//! of old and new:*
//!
//! * A request that began before the last mediator was installed, and has called nothing yet that tracks it, sees old
//!   roots only, and the switch waits for it (the generation) before it blocks anybody.
//! * A tracked request sees old roots only, and the switch waits for it (the ledgers) before the transfer.
//! * Any other request calls its first member when calls block, and goes on when all new roots are in their places,
//!   or finds a new root directly; then the commit has begun, no member has an old root to offer any more, and one
//!   that still has its mediator makes the request wait until it has not.
//!
//! On the way back (roll-back) the same holds with old for new: the new roots have never been in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use refit_change::{Blocker, Change, End, Phase, Report, Timeline};

use refit_sys::thread::Urgent;

use crate::clustering::Clustering;
use crate::generation::Caller;
use crate::interface::{Interface, Root};
use crate::mediation::{Mediation, Outcome, Tally};
use crate::mediator::{Mediator, SwitchNumber, Unit};
use crate::object::{AnyRoot, Attached, ObjectId, Slot};
use crate::registry;
use crate::retire::{GENERATIONS, advance, defer};
use crate::swap::{REQUESTER_GONE, SwapOptions};
use crate::ticket::Patience;
use crate::transfer::moving::{Moving, Transferring, Unmoved};

/// So many switches are urgent from the beginning, if nobody calls meanwhile.
static URGENT_YET: AtomicU32 = AtomicU32::new(0);

/// As many are, after one in which somebody called: the object is used then, and probably the next one is too.
const URGENT_AFTER: u32 = 1024;

/// An object that is to be switched, and to what. Its right to change is held by who makes it.
pub(crate) struct Member {
    slot: Arc<Slot>,
    old: Arc<dyn AnyRoot>,
    new: Arc<dyn AnyRoot>,
    moving: Arc<dyn Transferring>,
}

impl Member {
    /// `None` if the object has another interface.
    pub(crate) fn new<I: Interface>(
        slot: &Arc<Slot>,
        root: Box<dyn Root<I>>,
        clustering: Clustering,
    ) -> Option<Self> {
        let before = slot.root();
        let old = Arc::clone(&before).into_any().downcast::<Attached<I>>().ok()?;
        let new = Arc::new(Attached::clustered(root, slot.id, clustering));
        let moving = Arc::new(Moving::new(old, Arc::clone(&new)));
        Some(Member { slot: Arc::clone(slot), old: before, new, moving })
    }

    /// Its state on the way; what is to be agreed on before the switch, and reported after it.
    pub(crate) fn moving(&self) -> Arc<dyn Transferring> {
        Arc::clone(&self.moving)
    }

    /// Name of the implementation that serves.
    pub(crate) fn from(&self) -> String {
        self.old.implementation()
    }

    /// Name of the implementation that is to serve.
    pub(crate) fn to(&self) -> String {
        self.new.implementation()
    }

    pub(crate) fn object(&self) -> String {
        self.slot.full_name()
    }
}

/// Why a switch is given up.
#[derive(Debug)]
pub(crate) struct GivenUp {
    pub(crate) why: String,
    pub(crate) blockers: Vec<Blocker>,
    /// The deadline passed: it may well be done in time when it is tried again.
    pub(crate) late: bool,
    /// It was a dry run, and has come to its end.
    pub(crate) rehearsed: bool,
}

impl GivenUp {
    pub(crate) fn because(why: impl Into<String>) -> Self {
        GivenUp { why: why.into(), blockers: Vec::new(), late: false, rehearsed: false }
    }
}

/// A switch under way.
pub(crate) struct Switch<'a> {
    members: Vec<Member>,
    mediators: Vec<Arc<Mediator>>,
    mediation: Arc<Mediation>,
    options: &'a SwapOptions,
    /// `None`: the deadline is beyond what the clock can tell.
    until: Option<Instant>,
    timeline: Timeline,
    /// From the moment on at which somebody is seen to call a member, or from the beginning.
    urgent: Option<Urgent>,
    /// Somebody was in the way.
    called: bool,
}

/// What is left of a switch: to be retired, by the batch if there are many.
pub(crate) struct Ended {
    pub(crate) result: Result<(), GivenUp>,
    pub(crate) tally: Tally,
    pub(crate) timeline: Timeline,
    pub(crate) target_gone: bool,
    /// What nobody can find any more, but some may still use.
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
        }
    }

    /// All phases.
    pub(crate) fn run(mut self, change: Change) -> Report {
        // Not when it is made: an upgrade makes many, and is urgent itself.
        let urgent = self.options.urgent && URGENT_YET.load(Ordering::Relaxed) > 0;
        self.urgent = urgent.then(Urgent::begin);
        let members = self.members.len() as u64;
        let installed = self.install().and_then(|()| {
            let generation = advance();
            self.check(Phase::Install).map(|()| generation)
        });
        let Ended { result, tally, timeline, target_gone, garbage } = self.finish(installed);
        // Not `retire`: the next change has a barrier of its own, and takes it along.
        defer(garbage);
        let (end, blockers, late) = match result {
            Ok(()) => (End::Committed, Vec::new(), false),
            Err(GivenUp { rehearsed: true, .. }) => (End::Rehearsed, Vec::new(), false),
            Err(GivenUp { why, blockers, late, .. }) => (End::RolledBack(why), blockers, late),
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

    /// The mediators take over. Then the generation must be advanced.
    pub(crate) fn install(&mut self) -> Result<(), GivenUp> {
        self.check(Phase::Prepare)?;
        self.timeline.enter(Phase::Install);
        for (member, mediator) in self.members.iter().zip(&self.mediators) {
            member.slot.swing_root(Arc::clone(mediator) as Arc<dyn AnyRoot>);
        }
        Ok(())
    }

    /// Everything after the install; `installed` is the generation that began then.
    pub(crate) fn finish(mut self, installed: Result<u64, GivenUp>) -> Ended {
        let result = installed.and_then(|generation| self.up_to_commit(generation));
        let (phase, outcome) = match result {
            Ok(()) => (Phase::Commit, Outcome::New),
            Err(_) => (Phase::RollBack, Outcome::Old),
        };
        self.hand_over(phase, outcome);
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

    fn up_to_commit(&mut self, generation: u64) -> Result<(), GivenUp> {
        self.forward(generation)?;
        self.block()?;
        self.timeline.enter(Phase::Transfer);
        self.check(Phase::Transfer)?;
        for member in &self.members {
            let whose =
                || if self.members.len() > 1 { member.object() + ": " } else { String::new() };
            let give_up = |now| self.in_time(now).is_err();
            match Arc::clone(&member.moving).run(&give_up) {
                Ok(()) => {}
                Err(Unmoved::Failed(error)) => {
                    return Err(GivenUp::because(format!("{}transfer failed: {error}", whose())));
                }
                Err(Unmoved::GivenUp { thread }) => return Err(self.without(&whose(), thread)),
            }
        }
        // The last point at which it can be given up.
        self.check(Phase::Commit)?;
        if self.options.dry_run {
            return Err(GivenUp { rehearsed: true, ..GivenUp::because("it was a dry run") });
        }
        Ok(())
    }

    /// Why the switch is given up while a step of the transfer runs in `thread`.
    fn without(&self, whose: &str, thread: u32) -> GivenUp {
        let reason = self.in_time(Instant::now()).err();
        let reason = reason.unwrap_or_else(|| GivenUp::because("it was given up"));
        let why = format!(
            "{}; {whose}the transfer has not returned: it is left alone in thread {thread}, and what it brings is not used",
            reason.why
        );
        GivenUp { why, ..reason }
    }

    /// Waits until every call that the mediators do not know has ended.
    fn forward(&mut self, generation: u64) -> Result<(), GivenUp> {
        let since = self.timeline.since();
        let mut patience = Patience::default();
        while !GENERATIONS.passed(generation) {
            self.hurry();
            if let Err(mut given_up) = self.in_time(Instant::now()) {
                let stragglers = GENERATIONS.stragglers(generation);
                given_up.blockers =
                    stragglers.iter().map(|s| blocker(*s, since.elapsed())).collect();
                return Err(given_up);
            }
            patience.lose();
        }
        Ok(())
    }

    /// New calls wait; waits until what is tracked has left.
    fn block(&mut self) -> Result<(), GivenUp> {
        if self.mediation.in_use() {
            self.hurry();
        }
        self.timeline.enter(Phase::Quiesce);
        self.mediation.block();
        self.check(Phase::Quiesce)?;
        let mut patience = Patience::default();
        while !self.mediation.drained() {
            if let Err(mut given_up) = self.in_time(Instant::now()) {
                let tracked = self.mediation.tracked();
                given_up.blockers = tracked.iter().map(|t| blocker(t.caller, t.age())).collect();
                return Err(given_up);
            }
            patience.lose();
        }
        Ok(())
    }

    /// One of the two roots of each member takes over from its mediator, and blocked calls go on there.
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

    /// Others call, and are going to wait for what happens from here on.
    fn hurry(&mut self) {
        self.called = true;
        if self.options.urgent {
            self.urgent.get_or_insert_with(Urgent::begin);
        }
    }

    fn check(&self, phase: Phase) -> Result<(), GivenUp> {
        let Some(hook) = &self.options.hook else {
            // A look at the clock is as long as a phase in which nobody is in the way.
            return self.in_time(self.timeline.since());
        };
        hook(phase).map_err(GivenUp::because)?;
        self.in_time(Instant::now())
    }

    fn in_time(&self, now: Instant) -> Result<(), GivenUp> {
        if self.options.cancelled() {
            return Err(GivenUp::because(REQUESTER_GONE));
        }
        if let Some(doomed) = self.members.iter().find(|member| member.slot.doomed()) {
            let which = if self.members.len() > 1 { doomed.object() } else { "the object".into() };
            return Err(GivenUp::because(format!("{which} is being destroyed")));
        }
        match self.until {
            Some(until) if now >= until => {
                let deadline = self.options.deadline;
                let why = format!("the deadline of {deadline:?} passed");
                Err(GivenUp { late: true, ..GivenUp::because(why) })
            }
            _ => Ok(()),
        }
    }
}

/// Whether the next switches are to be urgent from the beginning.
fn remember(called: bool) {
    // Relaxed, and not as one step: it is a guess.
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
