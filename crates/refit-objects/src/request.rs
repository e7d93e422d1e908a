//! Requests: the unit in which the system waits for calls to end.

use std::cell::{Cell, RefCell};

use crate::generation::Record;
use crate::object::{Bound, ObjectId};
use crate::rep::RepHeader;
use crate::retire::GENERATIONS;
use crate::table;

thread_local! {
    /// This thread's record. Without a destructor, so that it is one load.
    static RECORD: Cell<Option<Record>> = const { Cell::new(None) };
    /// Gives the record back when the thread ends.
    static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) };
    /// The switches in whose tracked calls this thread is, outermost first.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// What is to be done when the present request ends.
    static AT_END: RefCell<Vec<Debt>> = const { RefCell::new(Vec::new()) };
}

type Debt = Box<dyn FnOnce()>;

struct Guard(Record);

impl Drop for Guard {
    fn drop(&mut self) {
        RECORD.set(None);
        GENERATIONS.unregister(self.0);
    }
}

/// This thread's record.
#[inline(always)]
pub(crate) fn record() -> Record {
    match RECORD.get() {
        Some(record) => record,
        None => register(),
    }
}

#[cold]
fn register() -> Record {
    let record = GENERATIONS.register(refit_sys::thread::id());
    RECORD.set(Some(record));
    // A thread that is ending has no guard any more; its record then stays its own for ever, which is safe.
    let _ = GUARD.try_with(|guard| *guard.borrow_mut() = Some(Guard(record)));
    record
}

/// Runs `f` as one request: whatever it calls, the system waits for all of it as a whole. Calls outside of any
/// request are a request each.
pub fn request<R>(f: impl FnOnce() -> R) -> R {
    struct Leave(Record, bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            end(self.0, self.1);
        }
    }
    let record = record();
    let _leave = Leave(record, record.enter(&GENERATIONS));
    f()
}

/// Ends a call, and the request if the call was the outermost.
#[inline(always)]
fn end(record: Record, outermost: bool) {
    if outermost {
        if record.owes() {
            settle_up(record);
        }
        record.leave(true);
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

/// One call: the request around it, and the look-up. Used by generated code.
#[derive(Debug)]
pub struct Call {
    record: Record,
    id: ObjectId,
    /// Whether it is a request of its own.
    outermost: bool,
}

impl Call {
    /// Begins the call.
    #[inline(always)]
    pub fn enter<I>(object: Bound<I>, method: u16) -> Self {
        let id = object.id();
        let record = record();
        let outermost = record.enter(&GENERATIONS);
        record.note(id.index, method);
        Call { record, id, outermost }
    }

    /// The rep that serves the object here; valid until this call is dropped.
    ///
    /// # Panics
    /// If the object has been destroyed.
    #[inline(always)]
    pub fn rep(&self) -> *const RepHeader {
        // SAFETY: the id was that of a `Bound`, so its object was created; `enter` began the request.
        let rep = unsafe { table::look_up(self.id.index) };
        // SAFETY: entries of created objects always point to a live rep, the default object or GONE.
        if unsafe { (*rep).serial } != self.id.serial {
            gone(self.id);
        }
        rep
    }
}

impl Drop for Call {
    #[inline(always)]
    fn drop(&mut self) {
        end(self.record, self.outermost);
    }
}

#[cold]
#[inline(never)]
fn gone(id: ObjectId) -> ! {
    panic!("object {}.{} was called after it had been destroyed", id.index, id.serial)
}

/// Whether this thread is in a tracked call of the switch, itself or through a token.
pub(crate) fn inside(switch: u64) -> bool {
    INSIDE.with_borrow(|switches| switches.contains(&switch))
}

/// This thread enters a tracked call of the switch.
pub(crate) fn push_inside(switch: u64) {
    INSIDE.with_borrow_mut(|switches| switches.push(switch));
}

/// It leaves it again.
pub(crate) fn pop_inside(switch: u64) {
    INSIDE.with_borrow_mut(|switches| {
        if let Some(last) = switches.iter().rposition(|s| *s == switch) {
            switches.remove(last);
        }
    });
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
        RequestToken { inside: INSIDE.with_borrow(Clone::clone) }
    }

    /// Runs `f` as part of the request.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Leave<'a>(&'a [u64]);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.iter().for_each(|s| pop_inside(*s));
            }
        }
        self.inside.iter().for_each(|s| push_inside(*s));
        let _leave = Leave(&self.inside);
        request(f)
    }
}
