//! A transfer under way: agreed on before the swap begins, done while nobody is inside, reported when it has ended.
//!
//! # Why nothing is lost
//!
//! Export leaves the old root as it is, and nobody calls the new one before the commit. So whatever step fails, with an
//! error, with a panic, or by giving less than there was, the old root carries on with all it had. That less was given
//! is noticed in three places: the exporter says so itself ([`Exported::incomplete`](super::Exported::incomplete)), it
//! packed fewer items than the old root counts, or the new root counts fewer than that after the import. By reference
//! only what the exporter says it packed is compared.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use refit_change::{Drained, Report, Transferred, Way};

use super::drain::{self, DrainOptions};
use super::exported::Exported;
use super::negotiation::{NoCommonProtocol, Route, Sides, name};
use super::notes;
use crate::interface::{Interface, Root, TransferError};
use crate::object::Attached;
use crate::panics::panic_text;
use crate::swap::SwapOptions;
use crate::sync::{Mutex, lock};

/// Partitions go to several threads if doing them one after the other would take longer than this: some times what it
/// costs to start a thread.
const WORTH_THREADS: Duration = Duration::from_micros(300);

/// The state of one object on its way, whatever its interface.
pub(crate) trait Transferring {
    /// Agrees on the way. Both roots may be in use.
    fn agree(&self, options: &SwapOptions) -> Result<(), NoCommonProtocol>;
    /// Moves the state, while nobody is in any method. Must have been agreed on.
    fn run(&self) -> Result<(), TransferError>;
    /// What there is to say about it.
    fn transferred(&self) -> Transferred;
    /// Whether there is something to drain after the commit.
    fn lazy(&self) -> bool;
    /// Moves the rest of a lazy transfer.
    fn drain(&self, options: &DrainOptions, over: &dyn Fn() -> bool) -> Drained;
}

/// A transfer from `old` to `new`.
pub(crate) struct Moving<I: Interface> {
    old: Arc<Attached<I>>,
    new: Arc<Attached<I>>,
    route: OnceCell<Route>,
    dry_run: Cell<bool>,
    done: RefCell<Transferred>,
}

/// When calls go on after a switch: the drains, and what the report says about each object.
pub(crate) fn report_on(
    report: &mut Report,
    moving: &[Rc<dyn Transferring>],
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
    fn agree(&self, options: &SwapOptions) -> Result<(), NoCommonProtocol> {
        let sides = Sides::of(self.old(), self.new_root(), options.protocol.as_deref());
        let Some(route) = sides.route() else { return Err(sides.nothing()) };
        self.dry_run.set(options.dry_run);
        if options.dry_run {
            self.done.borrow_mut().negotiation = Some(sides.explained(&route.protocols));
        }
        let _ = self.route.set(route); // Agreed on once.
        Ok(())
    }

    fn run(&self) -> Result<(), TransferError> {
        let Some(route) = self.route.get() else {
            return Err(TransferError("nothing was agreed on; that is a mistake in refit".into()));
        };
        let (result, notes) = notes::collect(|| self.transfer(route));
        self.done.borrow_mut().notes.extend(notes);
        result
    }

    fn transferred(&self) -> Transferred {
        let mut done = self.done.borrow().clone();
        if let Some(route) = self.route.get() {
            done.route = route.protocols.iter().map(|p| name::<I>(*p)).collect();
            done.way = route.way;
            done.parts = u32::try_from(route.parts).unwrap_or(u32::MAX);
        }
        done
    }

    fn lazy(&self) -> bool {
        self.route.get().is_some_and(|route| route.way == Way::Lazy)
    }

    fn drain(&self, options: &DrainOptions, over: &dyn Fn() -> bool) -> Drained {
        drain::run(self.new_root(), options, over)
    }
}

impl<I: Interface> Moving<I> {
    pub(crate) fn new(old: Arc<Attached<I>>, new: Arc<Attached<I>>) -> Self {
        let (route, dry_run, done) = (OnceCell::new(), Cell::new(false), RefCell::default());
        Moving { old, new, route, dry_run, done }
    }

    fn old(&self) -> &dyn Root<I> {
        &*self.old.root
    }

    fn new_root(&self) -> &dyn Root<I> {
        &*self.new.root
    }

    fn transfer(&self, route: &Route) -> Result<(), TransferError> {
        let expected = match route.way {
            // Nothing moves item by item, and to count would be to touch what need not be touched.
            Way::Reference if !self.dry_run.get() => None,
            _ => step(|| "counting the old state".into(), || Ok(self.old().count()))?,
        };
        if route.parts > 1 {
            self.in_parts(route)?
        } else {
            self.whole(route)?
        }
        let mut done = self.done.borrow_mut();
        compare("the old implementation holds", expected, "it exported", done.items)?;
        done.items = done.items.or(expected);
        if done.items.is_none() {
            return Ok(());
        }
        let arrived = step(|| "counting the new state".into(), || Ok(self.new_root().count()))?;
        compare("the old implementation exported", done.items, "the new one holds", arrived)
    }

    fn whole(&self, route: &Route) -> Result<(), TransferError> {
        let protocols = &route.protocols;
        let began = Instant::now();
        let what = || format!("export as `{}`", name::<I>(protocols[0]));
        let mut state = step(what, || self.old().export_as(protocols[0]))?;
        let exported = Instant::now();
        self.done.borrow_mut().take_in(&state)?;
        for (to, convert) in protocols[1..].iter().zip(&route.converters) {
            let what = || format!("conversion to `{}`", name::<I>(*to));
            state = step(what, || convert(state))?;
        }
        // A look at the clock is a fifth of a small transfer: only where there is something to time.
        let converted = if protocols.len() > 1 { Instant::now() } else { exported };
        let last = protocols[protocols.len() - 1];
        let what = || format!("import as `{}`", name::<I>(last));
        step(what, || self.new_root().import_as(last, state))?;
        let mut done = self.done.borrow_mut();
        done.export_ns = nanos(exported - began);
        done.convert_ns = nanos(converted - exported);
        done.import_ns = nanos(converted.elapsed());
        Ok(())
    }

    /// The first partition tells how long the others will take.
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
        let mut done = self.done.borrow_mut();
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
        // What the threads share: not `self`, whose result is this thread's own.
        let (old, new) = (self.old(), self.new_root());
        let work = || {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed); // Only hands out numbers.
                if part >= route.parts {
                    return Ok(());
                }
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

/// Adds what a root exported.
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

/// One step of foreign code: an error says which step it was, and a panic is an error.
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
