//! A transfer in progress: negotiated before the swap begins, carried out while no call is inside,
//! and reported when it has ended.
//!
//! # Why nothing is lost
//!
//! Export leaves the old root as it is, and no call reaches the new one before the commit. So if
//! any step fails, by an error, by a panic, or by delivering fewer items than there were, the old
//! root continues with all its state. Missing items are detected in three places: the exporter
//! reports them itself ([`Exported::incomplete`](super::Exported::incomplete)), it has packed fewer
//! items than the old root counts, or the new root counts fewer than that after the import. By
//! reference only the number that the exporter has packed is compared.
//!
//! # Why a step that does not return delays no call
//!
//! Roots that do not promise to [transfer promptly](Root::transfers_promptly) export, import and
//! relinquish on a separate thread ([`parted`]). At the deadline the swapper abandons that thread:
//! the old root serves again, the new one is never called, and the thread's result is discarded
//! when it returns. Until then the old root refuses another export, since it may not be prepared
//! for two at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use refit_change::{Drained, Report, Transferred, Way};

use super::drain::{self, DrainOptions};
use super::exported::Exported;
use super::negotiation::{NoCommonProtocol, Route, Sides, name};
use super::notes;
use super::parted::{NoResult, parted};
use crate::attached::Attached;
use crate::ending::{Ending, RolledBack};
use crate::interface::{Interface, Root, TransferError};
use crate::mediation::Outcome;
use crate::panics::panic_text;
use crate::swap_options::{Handover, SwapOptions};
use crate::sync::{Mutex, lock};

/// The duration above which partitions are distributed to several threads: a few times the cost of
/// starting a thread.
const WORTH_THREADS: Duration = Duration::from_micros(300);

/// The time for which calls wait for a root to release what it shares with its successor.
const RELINQUISH_TIMEOUT: Duration = Duration::from_millis(100);

/// The transfer of one object's state, whatever its interface.
pub(crate) trait Transferring: Send + Sync {
    /// Negotiates the protocol. Both roots may be in use.
    fn agree(&self, options: &SwapOptions) -> Result<(), Disagreement>;
    /// Moves the state, while no call is in any method. Must follow a successful negotiation.
    /// `give_up` is called while a step runs on a separate thread.
    fn run(self: Arc<Self>, give_up: &dyn Fn(Instant) -> bool) -> Result<(), TransferFailure>;
    /// Makes the root that lost relinquish, before calls continue.
    fn let_go(self: Arc<Self>, outcome: Outcome);
    /// Returns the part of the report about it.
    fn transferred(&self) -> Transferred;
    /// Returns whether there is something to drain after the commit.
    fn lazy(&self) -> bool;
    /// Moves the rest of a lazy transfer.
    fn drain(&self, options: &DrainOptions, over: &dyn Fn() -> bool) -> Drained;
}

/// The reason that a transfer cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Disagreement {
    #[error(transparent)]
    NoCommonProtocol(#[from] NoCommonProtocol),
    #[error(
        "the state of `{interface}` is more than a hint, so it cannot be left behind; request an empty state explicitly"
    )]
    NotAHint { interface: &'static str },
    #[error("`{interface}` declares no empty state")]
    NoEmptyState { interface: &'static str },
    #[error(
        "an earlier transfer from {from} missed its deadline and has not returned (thread {thread}); swap it without its state"
    )]
    Unreturned { from: String, thread: usize },
}

impl Disagreement {
    /// Returns the part of the report of the refused change.
    pub(crate) fn as_transfer(&self) -> Option<Transferred> {
        match self {
            Disagreement::NoCommonProtocol(none) => Some(none.as_transfer()),
            _ => None,
        }
    }
}

/// The reason that state did not arrive.
#[derive(Debug)]
pub(crate) enum TransferFailure {
    Failed(TransferError),
    /// A step had not returned when the swapper gave up. It continues in this thread.
    GivenUp {
        thread: u32,
    },
}

/// A transfer from `old` to `new`.
pub(crate) struct Moving<I: Interface> {
    old: Arc<Attached<I>>,
    new: Arc<Attached<I>>,
    plan: OnceLock<Plan>,
    /// Whether the swapper has given up, so that no further step begins.
    given_up: AtomicBool,
    done: Mutex<Transferred>,
}

/// The result of the negotiation.
struct Plan {
    handover: Handover,
    /// `None` if the old state is abandoned.
    route: Option<Route>,
    dry_run: bool,
}

/// Runs the drains when calls have continued after a switch, and adds each object's part to the
/// report.
pub(crate) fn report_on(
    report: &mut Report,
    moving: &[Arc<dyn Transferring>],
    options: &SwapOptions,
    over: &dyn Fn() -> bool,
) {
    for object in moving {
        let mut done = object.transferred();
        if object.lazy() && report.committed() {
            done.drained = Some(object.drain(&options.drain, over));
        }
        report.transfers.push(done);
    }
}

impl<I: Interface> Transferring for Moving<I> {
    fn agree(&self, options: &SwapOptions) -> Result<(), Disagreement> {
        let (handover, dry_run) = (options.handover, options.dry_run);
        let route = match handover {
            Handover::Transfer => Some(self.route(options)?),
            Handover::WithoutState if I::state_is_hint() => None,
            Handover::WithoutState => {
                return Err(Disagreement::NotAHint { interface: I::info().name });
            }
            Handover::EmptyState if I::empty_state().is_some() => None,
            Handover::EmptyState => {
                return Err(Disagreement::NoEmptyState { interface: I::info().name });
            }
        };
        let _ = self.plan.set(Plan { handover, route, dry_run }); // Agreed on once.
        Ok(())
    }

    fn run(self: Arc<Self>, give_up: &dyn Fn(Instant) -> bool) -> Result<(), TransferFailure> {
        if self.prompt() {
            return self.move_state().map_err(TransferFailure::Failed);
        }
        let (here, late) = (Arc::clone(&self), Arc::clone(&self));
        match parted(move || here.move_state(), move || late.clean_up(), give_up) {
            Ok(moved) => moved.map_err(TransferFailure::Failed),
            Err(NoResult::Failed(why)) => Err(TransferFailure::Failed(TransferError(why))),
            Err(NoResult::GivenUp { thread }) => {
                // Pairs with the load in `still_wanted`.
                self.given_up.store(true, Ordering::Release);
                Err(TransferFailure::GivenUp { thread })
            }
        }
    }

    fn let_go(self: Arc<Self>, outcome: Outcome) {
        if self.given_up.load(Ordering::Acquire) {
            // The thread that is still running cleans up; no other touches the new root.
            return;
        }
        let here = Arc::clone(&self);
        let relinquish = move || match outcome {
            Outcome::New => here.old().relinquish(Ending::Committed),
            Outcome::Old => here.new_root().relinquish(Ending::RolledBack(&RolledBack::new())),
        };
        if self.prompt() {
            // A panic changes nothing: the root is no longer needed, and the other root must be put
            // in its place.
            let _ = catch_unwind(AssertUnwindSafe(relinquish));
            return;
        }
        let until = Instant::now() + RELINQUISH_TIMEOUT;
        if let Err(NoResult::GivenUp { thread }) = parted(relinquish, || (), &|now| now >= until) {
            let note = format!(
                "letting go of what is shared has not returned after {RELINQUISH_TIMEOUT:?} (thread {thread})"
            );
            lock(&self.done).notes.push(note);
        }
    }

    fn transferred(&self) -> Transferred {
        let mut done = lock(&self.done).clone();
        match self.plan.get() {
            Some(Plan { route: Some(route), .. }) => {
                done.route = route.protocols.iter().map(|p| name::<I>(*p)).collect();
                done.way = route.way;
                done.parts = u32::try_from(route.parts).unwrap_or(u32::MAX);
            }
            Some(Plan { route: None, .. }) => done.way = Way::None,
            None => {}
        }
        done
    }

    fn lazy(&self) -> bool {
        let route = self.plan.get().and_then(|plan| plan.route.as_ref());
        route.is_some_and(|route| route.way == Way::Lazy)
    }

    fn drain(&self, options: &DrainOptions, over: &dyn Fn() -> bool) -> Drained {
        drain::run(self.new_root(), options, over)
    }
}

impl<I: Interface> Moving<I> {
    pub(crate) fn new(old: Arc<Attached<I>>, new: Arc<Attached<I>>) -> Self {
        let (plan, done) = (OnceLock::new(), Mutex::new(Transferred::default()));
        Moving { old, new, plan, given_up: AtomicBool::new(false), done }
    }

    fn old(&self) -> &dyn Root<I> {
        &*self.old.root
    }

    fn new_root(&self) -> &dyn Root<I> {
        &*self.new.root
    }

    /// Returns whether no step can take long, so that all of them run on the swapping thread.
    fn prompt(&self) -> bool {
        self.old().transfers_promptly() && self.new_root().transfers_promptly()
    }

    fn route(&self, options: &SwapOptions) -> Result<Route, Disagreement> {
        // Relaxed: the id guards nothing; the refusal names it.
        let thread = self.old.unreturned.load(Ordering::Relaxed);
        if thread != 0 {
            return Err(Disagreement::Unreturned {
                from: self.old().implementation().into(),
                thread,
            });
        }
        let sides = Sides::of(self.old(), self.new_root(), options.protocol.as_deref());
        let Some(route) = sides.route() else { return Err(sides.nothing().into()) };
        if options.dry_run {
            lock(&self.done).negotiation = Some(sides.explained(&route.protocols));
        }
        Ok(route)
    }

    /// Runs all steps, on any thread.
    fn move_state(&self) -> Result<(), TransferError> {
        let Some(plan) = self.plan.get() else {
            return Err(TransferError("nothing was agreed on; that is a mistake in refit".into()));
        };
        let _unreturned = Unreturned::begin(&self.old.unreturned);
        let (result, notes) = notes::collect(|| match &plan.route {
            Some(route) => self.transfer(route, plan.dry_run),
            None => self.begin_anew(plan.handover),
        });
        lock(&self.done).notes.extend(notes);
        result
    }

    /// Lets the new root begin as created, or with the empty state of the interface.
    fn begin_anew(&self, handover: Handover) -> Result<(), TransferError> {
        if let (Handover::EmptyState, Some(state)) = (handover, I::empty_state()) {
            step(|| "import of the empty state".into(), || self.new_root().import(state))?;
        }
        let from = self.old().implementation();
        super::note(format!("the state of {from} was left behind, as asked"));
        Ok(())
    }

    /// Cleans up after the swapper has given up, on the thread that it has abandoned: the new root,
    /// which was never called, relinquishes.
    fn clean_up(&self) {
        self.new_root().relinquish(Ending::RolledBack(&RolledBack::new()));
    }

    /// Returns an error once the swapper has given up, so that no further step begins.
    fn still_wanted(&self) -> Result<(), TransferError> {
        // Acquire pairs with the release in `run`.
        if self.given_up.load(Ordering::Acquire) {
            return Err(TransferError("the swap was given up meanwhile".into()));
        }
        Ok(())
    }

    fn transfer(&self, route: &Route, dry_run: bool) -> Result<(), TransferError> {
        let expected = match route.way {
            // No item moves by itself, and counting would access items that the transfer does not
            // access.
            Way::Reference if !dry_run => None,
            _ => step(|| "counting the old state".into(), || Ok(self.old().count()))?,
        };
        if route.parts > 1 {
            self.in_parts(route)?
        } else {
            self.whole(route)?
        }
        let items = {
            let mut done = lock(&self.done);
            compare("the old implementation holds", expected, "it exported", done.items)?;
            done.items = done.items.or(expected);
            done.items
        };
        if items.is_none() {
            return Ok(());
        }
        self.still_wanted()?;
        let arrived = step(|| "counting the new state".into(), || Ok(self.new_root().count()))?;
        compare("the old implementation exported", items, "the new one holds", arrived)
    }

    fn whole(&self, route: &Route) -> Result<(), TransferError> {
        let protocols = &route.protocols;
        let began = Instant::now();
        let what = || format!("export as `{}`", name::<I>(protocols[0]));
        let mut state = step(what, || self.old().export_as(protocols[0]))?;
        let exported = Instant::now();
        lock(&self.done).take_in(&state)?;
        for (to, convert) in protocols[1..].iter().zip(&route.converters) {
            let what = || format!("conversion to `{}`", name::<I>(*to));
            state = step(what, || convert(state))?;
        }
        // Reading the clock takes a fifth of a small transfer, so it is read only if there is
        // something to time.
        let converted = if protocols.len() > 1 { Instant::now() } else { exported };
        let last = protocols[protocols.len() - 1];
        self.still_wanted()?;
        let what = || format!("import as `{}`", name::<I>(last));
        step(what, || self.new_root().import_as(last, state))?;
        let mut done = lock(&self.done);
        done.export_ns = nanos(exported - began);
        done.convert_ns = nanos(converted - exported);
        done.import_ns = nanos(converted.elapsed());
        Ok(())
    }

    /// The duration of the first partition predicts that of the others.
    fn in_parts(&self, route: &Route) -> Result<(), TransferError> {
        let done = Mutex::new(Transferred::default());
        let began = Instant::now();
        let next = AtomicUsize::new(1);
        let mut result = move_part(self.old(), self.new_root(), route, 0, &done);
        let rest = u32::try_from(route.parts - 1).unwrap_or(u32::MAX);
        let threads = if result.is_ok() && began.elapsed().saturating_mul(rest) >= WORTH_THREADS {
            refit_sys::processor::count().min(route.parts - 1)
        } else {
            1
        };
        if result.is_ok() {
            result = self.by_threads(route, threads, &next, &done);
        }
        let found = done.into_inner();
        let mut done = lock(&self.done);
        *done = Transferred { negotiation: done.negotiation.take(), ..found };
        result
    }

    fn by_threads(
        &self,
        route: &Route,
        threads: usize,
        next: &AtomicUsize,
        done: &Mutex<Transferred>,
    ) -> Result<(), TransferError> {
        let (old, new) = (self.old(), self.new_root());
        let work = || {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed); // Only hands out numbers.
                if part >= route.parts {
                    return Ok(());
                }
                self.still_wanted()?;
                if let Err(error) = move_part(old, new, route, part, done) {
                    next.store(route.parts, Ordering::Relaxed); // The others need not go on.
                    return Err(error);
                }
            }
        };
        std::thread::scope(|scope| {
            let helper = |_| {
                let named = std::thread::Builder::new().name("refit-transfer".into());
                // With fewer threads it only takes longer.
                named.spawn_scoped(scope, || notes::collect(work)).ok()
            };
            let helpers: Vec<_> = (1..threads).filter_map(helper).collect();
            let mut result = work();
            for helper in helpers {
                let (other, notes) = helper.join().unwrap_or_else(|panic| {
                    (Err(TransferError(panic_text(&*panic).to_owned())), Vec::new())
                });
                notes.into_iter().for_each(super::note);
                result = result.and(other);
            }
            result
        })
    }
}

fn move_part<I: Interface>(
    old: &dyn Root<I>,
    new: &dyn Root<I>,
    route: &Route,
    part: usize,
    done: &Mutex<Transferred>,
) -> Result<(), TransferError> {
    let protocol = route.protocols[0];
    let what = |verb| move || format!("{verb} of partition {part} as `{}`", name::<I>(protocol));
    let began = Instant::now();
    let state = step(what("export"), || old.export_part(protocol, part))?;
    let exported = Instant::now();
    lock(done).take_in(&state)?;
    step(what("import"), || new.import_part(protocol, part, state))?;
    let mut done = lock(done);
    done.export_ns += nanos(exported - began);
    done.import_ns += nanos(exported.elapsed());
    Ok(())
}

/// Marks a transfer from a root that has begun and not returned, as long as it lives.
struct Unreturned<'a>(&'a AtomicUsize);

impl<'a> Unreturned<'a> {
    fn begin(thread: &'a AtomicUsize) -> Self {
        // Relaxed, here and in `drop`: it guards nothing.
        thread.store(refit_sys::thread::id() as usize, Ordering::Relaxed);
        Unreturned(thread)
    }
}

impl Drop for Unreturned<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Adds what a root has exported.
trait TakeIn {
    fn take_in(&mut self, state: &Exported) -> Result<(), TransferError>;
}

impl TakeIn for Transferred {
    fn take_in(&mut self, state: &Exported) -> Result<(), TransferError> {
        let plus = |sum: Option<u64>, more: Option<u64>| match (sum, more) {
            (Some(sum), Some(more)) => Some(sum + more),
            (sum, more) => sum.or(more),
        };
        self.items = plus(self.items, state.items);
        self.bytes = plus(self.bytes, state.bytes);
        if state.complete {
            return Ok(());
        }
        Err(TransferError("the old implementation says that it could not export everything".into()))
    }
}

fn compare(
    left: &str,
    expected: Option<u64>,
    right: &str,
    found: Option<u64>,
) -> Result<(), TransferError> {
    match (expected, found) {
        (Some(expected), Some(found)) if expected != found => {
            Err(TransferError(format!("{left} {expected} items, {right} {found}")))
        }
        _ => Ok(()),
    }
}

/// Runs one step of foreign code: an error names the step, and a panic becomes an error.
fn step<T>(
    what: impl FnOnce() -> String,
    act: impl FnOnce() -> Result<T, TransferError>,
) -> Result<T, TransferError> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(TransferError(format!("{}: {error}", what()))),
        Err(panic) => Err(TransferError(format!("{} panicked: {}", what(), panic_text(&*panic)))),
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
