//! The swap: one implementation of an object takes over from another while it is called (Hui 2000, §4.3;
//! Soules 2003, §4.3.2).
//!
//! | phase | what happens | what calls notice |
//! |---|---|---|
//! | prepare | the new root is made, the mediator too | nothing |
//! | install (forward) | the mediator takes the root's place, entries are flushed; the swapper waits until every request that began before has ended | one miss per processor, then tracking |
//! | quiesce (block) | the swapper waits until no tracked call is inside | new calls wait |
//! | transfer | the old root exports, the new root imports | the same |
//! | commit | the new root takes the mediator's place, entries are flushed, waiting calls go on | one miss per processor |
//!
//! At any point before commit the swap can be given up: its deadline passes, its requester goes away, the object is to
//! be destroyed, import or export fails or panics, a hook says no. Then the old root takes the mediator's place, waiting calls go on in it, and
//! nothing is lost, because export leaves the old root able to carry on and nobody has called the new one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use refit_change::{Blocker, Change, ChangeId, End, Phase, Report, Timeline};

use refit_sys::thread::Urgent;

use crate::interface::{Implementations, Interface, Root, TransferError};
use crate::mediation::Outcome;
use crate::mediator::Mediator;
use crate::object::{AnyRoot, Attached, ObjectId, Slot, Swapper};
use crate::registry;
use crate::request::in_request;
use crate::retire::{GENERATIONS, collect, retire};

/// Called when a swap enters a phase; an error rolls it back.
pub type Hook = Arc<dyn Fn(Phase) -> Result<(), String> + Send + Sync>;

/// How a swap is to be done.
#[derive(Clone)]
pub struct SwapOptions {
    /// Time from the beginning until the commit at the latest; then it is rolled back.
    pub deadline: Duration,
    /// Set by the requester, or by who notices its end, to have the swap rolled back.
    pub cancel: Option<Arc<AtomicBool>>,
    /// Who asked; for the report.
    pub owner: String,
    /// For tests and probes: sees every phase.
    pub hook: Option<Hook>,
}

impl Default for SwapOptions {
    fn default() -> Self {
        SwapOptions {
            deadline: Duration::from_secs(1),
            cancel: None,
            owner: String::new(),
            hook: None,
        }
    }
}

impl std::fmt::Debug for SwapOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SwapOptions { deadline, cancel, owner, hook } = self;
        f.debug_struct("SwapOptions")
            .field("deadline", deadline)
            .field("cancel", cancel)
            .field("owner", owner)
            .field("hook", &hook.is_some())
            .finish()
    }
}

impl SwapOptions {
    fn cancelled(&self) -> bool {
        // Relaxed: nothing else is read on the strength of it.
        self.cancel.as_ref().is_some_and(|c| c.load(Ordering::Relaxed))
    }
}

/// Swaps an object to the implementation with this name. `change` is the number under which the report is filed.
pub fn swap_named(id: ObjectId, to: &str, change: ChangeId, options: &SwapOptions) -> Report {
    match registry::get(id) {
        Some(slot) => slot.swapper.swap(&slot, to, change, options),
        None => gone(nameless(id, to, change, options)),
    }
}

/// The change of an object that cannot be asked for its name any more.
fn nameless(id: ObjectId, to: &str, change: ChangeId, options: &SwapOptions) -> Change {
    let name = format!("{}.{}", id.index, id.serial);
    Change::new(change, "swap", &name, "", to, &options.owner)
}

/// Swaps an object to a root that was made elsewhere.
pub fn swap<I: Interface>(
    object: I::Ref,
    root: Box<dyn Root<I>>,
    change: ChangeId,
    options: &SwapOptions,
) -> Report {
    let id = I::id(object);
    match registry::get(id) {
        Some(slot) => swap_root(&slot, root, change, options),
        None => gone(nameless(id, root.implementation(), change, options)),
    }
}

/// Swaps objects of one interface by name.
pub(crate) struct ByName<I: Interface>(Arc<dyn Implementations<I>>);

impl<I: Interface> ByName<I> {
    pub(crate) fn new(implementations: Arc<dyn Implementations<I>>) -> Self {
        ByName(implementations)
    }
}

impl<I: Interface> Swapper for ByName<I> {
    fn names(&self) -> Vec<&'static str> {
        self.0.names()
    }

    fn swap(&self, slot: &Arc<Slot>, to: &str, change: ChangeId, options: &SwapOptions) -> Report {
        match self.0.root(to) {
            Some(root) => swap_root(slot, root, change, options),
            None => {
                let from = slot.root().implementation();
                let name = slot.full_name();
                let change = Change::new(change, "swap", &name, &from, to, &options.owner);
                let known = self.names().join(", ");
                refused(change, format!("there is no implementation {to:?}; there are: {known}"))
            }
        }
    }
}

fn refused(change: Change, why: String) -> Report {
    Report {
        change,
        phases: Vec::new(),
        end: End::Refused(why),
        forwarded: 0,
        blocked: 0,
        longest_block_ns: 0,
        blockers: Vec::new(),
        target_gone: false,
    }
}

fn gone(change: Change) -> Report {
    Report { target_gone: true, ..refused(change, "the object does not exist any more".into()) }
}

fn swap_root<I: Interface>(
    slot: &Arc<Slot>,
    root: Box<dyn Root<I>>,
    id: ChangeId,
    options: &SwapOptions,
) -> Report {
    let began = Instant::now();
    let to = root.implementation().to_owned();
    let name = slot.full_name();
    let change = |from: &str| Change::new(id, "swap", &name, from, &to, &options.owner);
    if in_request() {
        let why = "it was asked for from within a request, which it would have to wait for";
        return refused(change(""), why.into());
    }
    let Some(_ticket) = slot.changing().take(options.deadline, &|| options.cancelled()) else {
        let why = "another change of this object did not end before the deadline";
        return refused(change(""), why.into());
    };
    let before = slot.root();
    let Ok(old) = Arc::clone(&before).into_any().downcast::<Attached<I>>() else {
        return refused(change(""), "its interface is another one".into());
    };
    if slot.destroyed() {
        return gone(change(""));
    }
    let change = change(&before.implementation());
    let new = Arc::new(Attached::new(root, slot.id));
    let transfer = {
        let new = Arc::clone(&new);
        move || old.root.export().and_then(|state| new.root.import(state))
    };
    Switch {
        slot,
        mediator: Mediator::new(slot.interface, slot.id.serial, Arc::clone(&before), new.clone()),
        old: before,
        new,
        options,
        until: began.checked_add(options.deadline),
        timeline: Timeline::begin(),
    }
    .run(change, &transfer)
}

/// Why a switch is given up.
struct GivenUp {
    why: String,
    blockers: Vec<Blocker>,
}

impl GivenUp {
    fn because(why: impl Into<String>) -> Self {
        GivenUp { why: why.into(), blockers: Vec::new() }
    }
}

/// A swap under way.
struct Switch<'a> {
    slot: &'a Arc<Slot>,
    mediator: Arc<Mediator>,
    old: Arc<dyn AnyRoot>,
    new: Arc<dyn AnyRoot>,
    options: &'a SwapOptions,
    /// `None`: the deadline is beyond what the clock can tell.
    until: Option<Instant>,
    timeline: Timeline,
}

impl Switch<'_> {
    fn run(mut self, change: Change, transfer: &dyn Fn() -> Result<(), TransferError>) -> Report {
        // Others wait for what happens from here on.
        let _urgent = Urgent::begin();
        let (end, blockers) = match self.up_to_commit(transfer) {
            Ok(()) => {
                let_go(&*self.old);
                self.hand_over(Phase::Commit, Arc::clone(&self.new), Outcome::New);
                (End::Committed, Vec::new())
            }
            Err(given_up) => {
                let_go(&*self.new);
                self.hand_over(Phase::RollBack, Arc::clone(&self.old), Outcome::Old);
                (End::RolledBack(given_up.why), given_up.blockers)
            }
        };
        let target_gone = end != End::Committed && self.slot.doomed();
        let tally = self.mediator.mediation.tally();
        let loser = if end == End::Committed { self.old } else { self.new };
        retire(Box::new((self.mediator, loser)));
        Report {
            change,
            phases: self.timeline.end(),
            end,
            forwarded: tally.forwarded,
            blocked: tally.blocked,
            longest_block_ns: tally.longest_block_ns,
            blockers,
            target_gone,
        }
    }

    fn up_to_commit(
        &mut self,
        transfer: &dyn Fn() -> Result<(), TransferError>,
    ) -> Result<(), GivenUp> {
        self.check(Phase::Prepare)?;
        self.forward()?;
        self.block()?;
        self.timeline.enter(Phase::Transfer);
        self.check(Phase::Transfer)?;
        match catch_unwind(AssertUnwindSafe(transfer)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(GivenUp::because(format!("transfer failed: {error}"))),
            Err(panic) => return Err(GivenUp::because(panic_text(&*panic))),
        }
        // The last point at which it can be given up.
        self.check(Phase::Commit)
    }

    /// The mediator takes over; waits until every call that it does not know has ended.
    fn forward(&mut self) -> Result<(), GivenUp> {
        self.timeline.enter(Phase::Install);
        self.slot.swing_root(Arc::clone(&self.mediator) as Arc<dyn AnyRoot>);
        let generation = GENERATIONS.advance();
        self.check(Phase::Install)?;
        let since = Instant::now();
        let mut patience = Patience::default();
        while !GENERATIONS.passed(generation) {
            if let Err(mut given_up) = self.in_time() {
                let stragglers = GENERATIONS.stragglers(generation);
                given_up.blockers =
                    stragglers.iter().map(|s| blocker(s.tid, s.object, s.method, since)).collect();
                return Err(given_up);
            }
            patience.lose();
        }
        Ok(())
    }

    /// New calls wait; waits until the tracked ones have left.
    fn block(&mut self) -> Result<(), GivenUp> {
        self.timeline.enter(Phase::Quiesce);
        self.mediator.mediation.block();
        self.check(Phase::Quiesce)?;
        let mut patience = Patience::default();
        while !self.mediator.mediation.drained() {
            if let Err(mut given_up) = self.in_time() {
                let index = self.slot.id.index;
                let tracked = self.mediator.mediation.tracked();
                given_up.blockers =
                    tracked.iter().map(|t| blocker(t.tid, index, t.method, t.since)).collect();
                return Err(given_up);
            }
            patience.lose();
        }
        Ok(())
    }

    /// One of the two roots takes over from the mediator, and blocked calls go on there.
    fn hand_over(&mut self, phase: Phase, to: Arc<dyn AnyRoot>, outcome: Outcome) {
        self.timeline.enter(phase);
        self.slot.swing_root(to);
        self.mediator.mediation.complete(outcome);
    }

    fn check(&self, phase: Phase) -> Result<(), GivenUp> {
        if let Some(hook) = &self.options.hook {
            hook(phase).map_err(GivenUp::because)?;
        }
        self.in_time()
    }

    fn in_time(&self) -> Result<(), GivenUp> {
        if self.options.cancelled() {
            return Err(GivenUp::because("its requester went away"));
        }
        if self.slot.doomed() {
            return Err(GivenUp::because("the object is being destroyed"));
        }
        match self.until {
            Some(until) if Instant::now() >= until => {
                let deadline = self.options.deadline;
                Err(GivenUp::because(format!("the deadline of {deadline:?} passed")))
            }
            _ => Ok(()),
        }
    }
}

/// The loser lets go. Should it panic: it is done with anyway, and the winner must be put in its place.
fn let_go(loser: &dyn AnyRoot) {
    let _ = catch_unwind(AssertUnwindSafe(|| loser.relinquish()));
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("transfer panicked: {}", text.unwrap_or("no text"))
}

fn blocker(tid: u32, object: u32, method: u16, since: Instant) -> Blocker {
    let slot = registry::at(object);
    let name = slot.as_ref().map_or_else(String::new, |s| s.full_name());
    let method = slot.as_ref().and_then(|s| s.interface.methods.get(usize::from(method)));
    Blocker {
        tid,
        thread: refit_sys::thread::name(tid),
        object: name,
        method: method.map_or("", |m| m.name).to_owned(),
        age_us: u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX),
    }
}

/// How long a sleeping swapper goes without looking at its deadline.
const LOOK_AROUND: Duration = Duration::from_millis(1);

/// How to wait for something that mostly comes within a microsecond: spin, then sleep in short naps. A call that is
/// still in flight then is that of a thread which does not run, and it may need this very processor; so naps rather
/// than `sched_yield`, which an urgent thread would give to nobody.
#[derive(Default)]
struct Patience {
    tries: u32,
}

impl Patience {
    const SPINS: u32 = 200;
    const NAP: Duration = Duration::from_micros(5);
    const NAP_AT_MOST: Duration = Duration::from_micros(50);

    fn lose(&mut self) {
        self.tries += 1;
        match self.tries.checked_sub(Self::SPINS) {
            None | Some(0) => std::hint::spin_loop(),
            // Nobody tells when a request ends: that would cost every request. So it is polled.
            Some(naps) => std::thread::sleep((Self::NAP * naps).min(Self::NAP_AT_MOST)),
        }
    }
}

/// The right to change an object; those who want it queue.
#[derive(Debug, Default)]
pub(crate) struct SwapTicket {
    state: Mutex<TicketState>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct TicketState {
    taken: bool,
    /// Who waits. Mostly nobody, and then giving it back costs no system call.
    waiting: u32,
}

/// Gives the right back when it is dropped.
pub(crate) struct Taken<'a>(&'a SwapTicket);

impl SwapTicket {
    /// Waits for the right, for `patience` at most, or until `given_up` says so.
    pub(crate) fn take(
        &self,
        patience: Duration,
        given_up: &dyn Fn() -> bool,
    ) -> Option<Taken<'_>> {
        let until = Instant::now().checked_add(patience);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.taken {
            if given_up() || until.is_some_and(|u| Instant::now() >= u) {
                return None;
            }
            state.waiting += 1;
            let waited = self.given_back.wait_timeout(state, LOOK_AROUND);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        state.taken = true;
        Some(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let wanted = {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.taken = false;
            state.waiting > 0
        };
        if wanted {
            self.0.given_back.notify_one();
        }
        collect();
    }
}
