//! Requests: the unit in which the system waits for calls to end.
//!
//! # How a call is quick
//!
//! A thread's record says with one word whether the thread is inside a request, idle, or to be asked more closely. What
//! is to be asked is decided once, when the thread gets its record: where membarrier and rseq are both at hand the
//! thread is shown its own record, and calls rely on both; elsewhere it is shown that of nobody, and its calls take
//! the slow way, which relies on neither.

use std::cell::{Cell, RefCell};

use refit_sys::barrier;

use crate::generation::{Record, Standing, ThreadRecord};
use crate::inside;
use crate::object::{Bound, ObjectId};
use crate::rep::RepHeader;
use crate::retire::GENERATIONS;
use crate::table::{self, Entries};

static NOBODY: ThreadRecord = ThreadRecord::nobody();

/// What this thread's calls look at first. All in one place, and without a destructor, so that each look is one load.
struct Shown {
    /// The thread's record, or that of nobody.
    record: Cell<Record>,
    /// Where its entries of the table are found, if the record is its own.
    entries: Entries,
}

thread_local! {
    static SHOWN: Shown =
        const { Shown { record: Cell::new(&NOBODY), entries: Entries::unknown() } };
    /// This thread's record.
    static OWN: Cell<Option<Record>> = const { Cell::new(None) };
    /// Gives the record back when the thread ends.
    static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) };
    /// What is to be done when the present request ends.
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

/// This thread's record.
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
        // In this order: who sees the record relies on the entries.
        if asymmetric && shown.entries.find() {
            shown.record.set(record);
        }
    });
    // A thread that is ending has no guard any more; its record then stays its own for ever, which is safe.
    let _ = GUARD.try_with(|guard| *guard.borrow_mut() = Some(Guard(record)));
    record
}

/// Runs `f` as one request: whatever it calls, the system waits for all of it as a whole. Calls outside of any
/// request are a request each.
pub fn request<R>(f: impl FnOnce() -> R) -> R {
    let record = record();
    // Made only where it is wanted: dropping one ends the request.
    let _leave = record.enter(&GENERATIONS).then(|| Leave(record));
    f()
}

/// Ends a request, also when it panics.
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

/// Does what was put off until the end of the request.
#[cold]
fn settle_up(record: Record) {
    record.set_owes(false);
    // Taken out first: nothing that runs here finds the list borrowed.
    AT_END.take().into_iter().for_each(|debt| debt());
}

/// Puts something off until this thread's present request ends. To be called within a request.
pub(crate) fn until_request_ends(debt: impl FnOnce() + 'static) {
    AT_END.with_borrow_mut(|debts| debts.push(Box::new(debt)));
    record().set_owes(true);
}

/// Whether this thread is in a request.
pub(crate) fn in_request() -> bool {
    record().inside()
}

/// Calls an object: `invoke` is given the rep that serves it here, within a request. Used by generated code.
///
/// # Panics
/// If the object has been destroyed.
#[inline(always)]
pub fn call<I, R>(object: Bound<I>, method: u16, invoke: impl FnOnce(*const RepHeader) -> R) -> R {
    // SAFETY: it has no destructor, so it lives as long as the thread, which is that of this call. (`with` around all of
    // this would be a call of its own: the compiler does not take it apart.)
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

/// A call of a thread that has no record yet, or must be asked for its barrier and its processor.
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

/// The rep for a thread that was shown its own record; valid until the present request ends.
#[inline(always)]
fn look_up<I>(entries: &Entries, object: Bound<I>) -> *const RepHeader {
    // SAFETY: the id was that of a `Bound`, so its object was created; the request has begun; a thread is shown its
    // own record only when its entries have been found.
    let found = unsafe { entries.look_up(object.bits() as u32) };
    checked(found.unwrap_or_else(|| look_up_slowly(object.bits())), object)
}

/// The rep for any thread, in a request; `object` is the id of a `Bound`.
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

/// Lets a thread that was started within a request act as part of it, so that a switch does not block it while its
/// parent waits for it (Hui 2000, §4.4.2: explicitly created threads). The parent must wait for it.
#[derive(Clone, Debug)]
pub struct RequestToken {
    inside: Vec<u64>,
}

impl RequestToken {
    /// The request of this thread, to be passed on.
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

    /// Otherwise each thread would leave one behind for ever, and be named in reports after its end.
    #[test]
    fn a_thread_that_ends_gives_its_record_back() {
        let (record, tid) =
            std::thread::spawn(|| request(|| (record(), record().tid()))).join().expect("no panic");
        assert_ne!(record.tid(), tid);
    }
}
