//! A transfer under way: agreed on before the swap begins, done while nobody is inside, reported when it has ended.
//!
//! # Why nothing is lost
//!
//! Export leaves the old root as it is, and nobody calls the new one before the commit. So whatever step fails, with an
//! error, with a panic, or by giving less than there was, the old root carries on with all it had. That less was given
//! is noticed in three places: the exporter says so itself ([`Exported::incomplete`](super::Exported::incomplete)), it
//! packed fewer items than the old root counts, or the new root counts fewer than that after the import.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use refit_change::{End, Negotiation, Phase, Report, Transferred, Way};

use super::drain;
use super::exported::Exported;
use super::negotiation::{NoCommonProtocol, Route, Sides, name};
use super::{notes, panic_text};
use crate::interface::{Interface, Root, TransferError};
use crate::swap::{Hook, SwapOptions};
use crate::sync::lock;

/// Partitions go to several threads if doing them one after the other would take longer than this: some times what it
/// costs to start a thread.
const WORTH_THREADS: Duration = Duration::from_micros(300);

/// A transfer from `old` to `new`.
pub(crate) struct Moving<'a, I: Interface> {
    old: &'a dyn Root<I>,
    new: &'a dyn Root<I>,
    route: Route,
    negotiation: Option<Negotiation>,
    /// A dry run has come to its end.
    rehearsed: Arc<AtomicBool>,
    done: RefCell<Transferred>,
}

impl<'a, I: Interface> Moving<'a, I> {
    /// Agrees on the way. Both roots may be in use.
    pub(crate) fn agree(
        old: &'a dyn Root<I>,
        new: &'a dyn Root<I>,
        options: &'a SwapOptions,
    ) -> Result<Self, NoCommonProtocol> {
        let sides = Sides::of(old, new, options.protocol.as_deref());
        let Some(route) = sides.route() else { return Err(sides.nothing()) };
        let negotiation = options.dry_run.then(|| sides.explained(&route.protocols));
        let (rehearsed, done) = (Arc::default(), RefCell::default());
        Ok(Moving { old, new, route, negotiation, rehearsed, done })
    }

    /// The same options; for a dry run, with an end before the commit.
    pub(crate) fn options(&self, options: &SwapOptions) -> SwapOptions {
        if !options.dry_run {
            return options.clone();
        }
        let (inner, rehearsed) = (options.hook.clone(), Arc::clone(&self.rehearsed));
        let hook: Hook = Arc::new(move |phase| {
            inner.as_ref().map_or(Ok(()), |hook| hook(phase))?;
            if phase == Phase::Commit {
                rehearsed.store(true, Ordering::Relaxed); // Read by this thread only.
                return Err("it was a dry run".to_owned());
            }
            Ok(())
        });
        SwapOptions { hook: Some(hook), ..options.clone() }
    }

    /// Moves the state, while nobody is in any method.
    pub(crate) fn run(&self) -> Result<(), TransferError> {
        let (result, notes) = notes::collect(|| self.transfer());
        let mut done = self.done.borrow_mut();
        done.notes.extend(notes);
        result
    }

    /// What is left to do when calls go on: the drain, and the report.
    pub(crate) fn end(
        self,
        mut report: Report,
        over: &dyn Fn() -> bool,
        options: &SwapOptions,
    ) -> Report {
        if self.rehearsed.load(Ordering::Relaxed) && report.rolled_back() {
            report.end = End::Rehearsed;
        }
        let mut done = self.done.into_inner();
        done.route = self.route.protocols.iter().map(|p| name::<I>(*p)).collect();
        done.way = self.route.way;
        done.parts = u32::try_from(self.route.parts).unwrap_or(u32::MAX);
        done.negotiation = self.negotiation;
        if self.route.way == Way::Lazy && report.committed() {
            done.drained = Some(drain::run(self.new, &options.drain, over));
        }
        report.transfer = Some(Box::new(done));
        report
    }

    fn transfer(&self) -> Result<(), TransferError> {
        let expected = step(|| "counting the old state".into(), || Ok(self.old.count()))?;
        if self.route.parts > 1 {
            self.in_parts()?
        } else {
            self.whole()?
        }
        let mut done = self.done.borrow_mut();
        compare("the old implementation holds", expected, "it exported", done.items)?;
        done.items = done.items.or(expected);
        let arrived = step(|| "counting the new state".into(), || Ok(self.new.count()))?;
        compare("the old implementation exported", done.items, "the new one holds", arrived)
    }

    fn whole(&self) -> Result<(), TransferError> {
        let protocols = &self.route.protocols;
        let began = Instant::now();
        let what = || format!("export as `{}`", name::<I>(protocols[0]));
        let mut state = step(what, || self.old.export_as(protocols[0]))?;
        let exported = Instant::now();
        self.done.borrow_mut().take_in(&state)?;
        for (to, convert) in protocols[1..].iter().zip(&self.route.converters) {
            let what = || format!("conversion to `{}`", name::<I>(*to));
            state = step(what, || convert(state))?;
        }
        let converted = Instant::now();
        let last = protocols[protocols.len() - 1];
        let what = || format!("import as `{}`", name::<I>(last));
        step(what, || self.new.import_as(last, state))?;
        let mut done = self.done.borrow_mut();
        done.export_ns = nanos(exported - began);
        if protocols.len() > 1 {
            done.convert_ns = nanos(converted - exported);
        }
        done.import_ns = nanos(converted.elapsed());
        Ok(())
    }

    /// The first partition tells how long the others will take.
    fn in_parts(&self) -> Result<(), TransferError> {
        let done = Mutex::new(Transferred::default());
        let began = Instant::now();
        let next = AtomicUsize::new(1);
        let mut result = self.part(0, &done);
        let rest = u32::try_from(self.route.parts - 1).unwrap_or(u32::MAX);
        let threads = if result.is_ok() && began.elapsed().saturating_mul(rest) >= WORTH_THREADS {
            refit_sys::processor::count().min(self.route.parts - 1)
        } else {
            1
        };
        if result.is_ok() {
            result = self.by_threads(threads, &next, &done);
        }
        let found = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut done = self.done.borrow_mut();
        let notes = std::mem::take(&mut done.notes);
        *done = found;
        done.notes.extend(notes);
        result
    }

    fn by_threads(
        &self,
        threads: usize,
        next: &AtomicUsize,
        done: &Mutex<Transferred>,
    ) -> Result<(), TransferError> {
        // What the threads share: not `self`, whose result is this thread's own.
        let (old, new, route) = (self.old, self.new, &self.route);
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

    fn part(&self, part: usize, done: &Mutex<Transferred>) -> Result<(), TransferError> {
        move_part(self.old, self.new, &self.route, part, done)
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
