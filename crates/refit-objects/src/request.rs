//! Requests: the unit in which the system waits for calls to end.
//!
//! # The fast path of a call
//!
//! One word of a thread's record says whether the thread is inside a request, idle, or has to take
//! the slow path. That choice is made once, when the thread gets its record: where both membarrier
//! and rseq are available, the thread uses its own record, and calls rely on both. Elsewhere it
//! uses a record that belongs to no thread, and its calls take the slow path, which relies on
//! neither.

use std::cell::{Cell, RefCell};

use refit_sys::barrier;

use crate::bound::Bound;
use crate::generation::{Record, Standing, ThreadRecord};
use crate::id::ObjectId;
use crate::inside;
use crate::rep::RepHeader;
use crate::retire::GENERATIONS;
use crate::table::{self, Entries};

static NOBODY: ThreadRecord = ThreadRecord::nobody();

/// The data that this thread's calls access first. All in one place, and without a destructor, so
/// that each access is one load.
struct Shown {
    /// The thread's own record, or the shared record without an owner.
    record: Cell<Record>,
    /// The location of its table entries, if the record is its own.
    entries: Entries,
}

thread_local! {
    static SHOWN: Shown =
        const { Shown { record: Cell::new(&NOBODY), entries: Entries::unknown() } };
    /// This thread's record.
    static OWN: Cell<Option<Record>> = const { Cell::new(None) };
    /// Releases the record when the thread ends.
    static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) };
    /// The work that is pending for the end of the current request.
    static AT_END: RefCell<Vec<Debt>> = const { RefCell::new(Vec::new()) };
}

type Debt = Box<dyn FnOnce()>;

struct Guard(Record);

impl Drop for Guard {
    fn drop(&mut self) {
        SHOWN.with(|shown| shown.record.set(&NOBODY));
        OWN.set(None);
        GENERATIONS.unregister(self.0);
    }
}

/// Returns this thread's record.
#[inline]
pub(crate) fn record() -> Record {
    match OWN.get() {
        Some(record) => record,
        None => register(),
    }
}

#[cold]
fn register() -> Record {
    let record = GENERATIONS.register(refit_sys::thread::id());
    OWN.set(Some(record));
    let asymmetric = barrier::prepare() == barrier::Kind::Membarrier;
    SHOWN.with(|shown| {
        // In this order: a caller that sees the record relies on the entries.
        if asymmetric && shown.entries.find() {
            shown.record.set(record);
        }
    });
    // A thread that is ending has no guard any more; its record is then never reused, which is
    // safe.
    let _ = GUARD.try_with(|guard| *guard.borrow_mut() = Some(Guard(record)));
    record
}

/// Runs `f` as one request: the system waits for all of its calls as a whole. A call outside of any
/// request is a request of its own.
pub fn request<R>(f: impl FnOnce() -> R) -> R {
    let record = record();
    // Created only if needed: dropping one ends the request.
    let _leave = record.enter(&GENERATIONS).then(|| Leave(record));
    f()
}

/// Ends a request, also during a panic.
struct Leave(Record);

impl Drop for Leave {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.owes() {
            settle_up(self.0);
        }
        self.0.leave(true);
    }
}

/// Does the work that was postponed until the end of the request.
#[cold]
fn settle_up(record: Record) {
    record.set_owes(false);
    // Taken out first, so that the work never finds the list borrowed.
    AT_END.take().into_iter().for_each(|debt| debt());
}

/// Postpones work until this thread's current request ends. Must be called within a request.
pub(crate) fn until_request_ends(debt: impl FnOnce() + 'static) {
    AT_END.with_borrow_mut(|debts| debts.push(Box::new(debt)));
    record().set_owes(true);
}

/// Returns whether this thread is in a request.
pub(crate) fn in_request() -> bool {
    record().inside()
}

/// Calls an object: passes the rep that serves it on this processor to `invoke`, within a request.
/// Used by generated code.
///
/// # Panics
/// If the object has been destroyed.
#[inline(always)]
pub fn call<I, R>(object: Bound<I>, method: u16, invoke: impl FnOnce(*const RepHeader) -> R) -> R {
    // SAFETY: it has no destructor, so it lives as long as the thread, which runs this call.
    // (`with` around all of this would be a separate call, which the compiler does not inline.)
    let shown = unsafe { &*SHOWN.with(std::ptr::from_ref) };
    let record = shown.record.get();
    match record.standing() {
        Standing::Inside => {
            record.note(object.bits(), method);
            invoke(look_up(&shown.entries, object))
        }
        Standing::Idle => {
            record.begin(&GENERATIONS);
            let _leave = Leave(record);
            record.note(object.bits(), method);
            invoke(look_up(&shown.entries, object))
        }
        Standing::Unknown => call_slowly(object, method, invoke),
    }
}

/// Makes a call for a thread that has no record yet, or whose barrier and processor take the slow
/// path.
#[cold]
#[inline(never)]
fn call_slowly<I, R>(
    object: Bound<I>,
    method: u16,
    invoke: impl FnOnce(*const RepHeader) -> R,
) -> R {
    request(|| {
        record().note(object.bits(), method);
        invoke(checked(look_up_slowly(object.bits()), object))
    })
}

/// Returns the rep for a thread that uses its own record; valid until the current request ends.
#[inline(always)]
fn look_up<I>(entries: &Entries, object: Bound<I>) -> *const RepHeader {
    // SAFETY: the id was that of a `Bound`, so its object was created; the request has begun; a
    // thread uses its own record only when its entries have been found.
    let found = unsafe { entries.look_up(object.bits() as u32) };
    checked(found.unwrap_or_else(|| look_up_slowly(object.bits())), object)
}

/// Returns the rep for any thread, in a request; `object` is the id of a `Bound`.
#[cold]
#[inline(never)]
fn look_up_slowly(object: u64) -> *const RepHeader {
    // SAFETY: the id was that of a `Bound`, so its object was created; the request has begun.
    unsafe { table::look_up(object as u32) }
}

#[inline(always)]
fn checked<I>(rep: *const RepHeader, object: Bound<I>) -> *const RepHeader {
    // SAFETY: entries of created objects always point to a live rep, the default object or GONE.
    if unsafe { (*rep).object } != object.bits() {
        gone(object.id());
    }
    rep
}

#[cold]
#[inline(never)]
fn gone(id: ObjectId) -> ! {
    panic!("object {}.{} was called after it had been destroyed", id.index, id.serial)
}

/// Lets a thread that was started within a request act as part of it, so that a switch does not
/// block it while its parent waits for it (Hui 2000, §4.4.2: explicitly created threads). The
/// parent must wait for it.
#[derive(Clone, Debug)]
pub struct RequestToken {
    inside: Vec<u64>,
}

impl RequestToken {
    /// Returns a token for the request of this thread, to pass to other threads.
    pub fn of_this_request() -> Self {
        RequestToken { inside: inside::all() }
    }

    /// Runs `f` as part of the request.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Leave(Vec<u64>);
        impl Drop for Leave {
            fn drop(&mut self) {
                self.0.iter().for_each(|switch| inside::leave(*switch));
            }
        }
        let new = |switch: &u64| !inside::inside(*switch);
        let entered: Vec<u64> = self.inside.iter().copied().filter(new).collect();
        entered.iter().for_each(|switch| inside::enter(*switch));
        let _leave = Leave(entered);
        request(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_request_within_another_ends_nothing() {
        request(|| {
            request(|| assert!(record().inside()));
            assert!(record().inside());
        });
        assert!(!record().inside());
    }

    /// Otherwise each thread would leave a record behind forever, and reports would name it after
    /// its end.
    #[test]
    fn a_thread_that_ends_gives_its_record_back() {
        let (record, tid) =
            std::thread::spawn(|| request(|| (record(), record().tid()))).join().expect("no panic");
        assert_ne!(record.tid(), tid);
    }
}
