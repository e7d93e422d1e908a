//! Generations of requests, by which the system detects that all requests which began before a
//! point in time have ended.
//!
//! # Idea
//!
//! A *request* is what K42 calls the life of a PPC thread (Hui 2000, §3.3.3): the time in which a
//! thread may hold pointers that it found in the translation table. K42 counts the requests of two
//! generations per processor. Here every thread has its own word that holds the generation in which
//! its current request began, or 0 between requests. Words instead of counters cost no shared cache
//! line, and they identify the threads that delay a change.
//!
//! # Enter and leave
//!
//! `enter` stores the current generation into the thread's word, then passes a light barrier; only
//! then may the thread look into the table. `leave` stores 0 with release. Both are plain stores on
//! x86. A nested call sees that the word is set and leaves it alone; the call that has set it
//! clears it, so no depth is counted.
//!
//! A thread that has no record yet, or cannot rely on the asymmetric barrier, uses a shared record
//! without an owner (`ThreadRecord::nobody`). Its word is neither 0 nor a generation, so one load
//! of the word tells the fast path all three cases apart.
//!
//! # Advance
//!
//! A thread that has changed the table calls `advance`: a heavy barrier, then the generation is
//! incremented to `g`. The old table entries are unreachable for everyone once `passed(g)`: every
//! word is 0 or at least `g`.
//!
//! # Why this holds
//!
//! Let S be the store into the table before `advance`, and let thread T load the table's old value
//! by a load L. T stored its word W before L, with a light barrier between. The heavy barrier makes
//! T execute a full fence at some point F. If L came after F, it would see S; so L, and with it W,
//! came before F, and W is visible to the loads in `passed`. W's value was read before F and the
//! increment came after F, so W < g. Hence `passed(g)` is false until T stores 0 (or a later
//! generation): the acquire load there pairs with the release store in `leave`, or in the `enter`
//! that follows it, so that everything T did within its request happens before `passed(g)` returns.
//! A thread that has read the generation long ago and enters late may show a word < g although it
//! sees the new table: then `passed` waits a little too long, which is harmless. Progress: a
//! request that begins after `advance` has W ≥ g unless it read the generation before. Each thread
//! can do that once, so `passed(g)` waits for at most one request of each thread after its current
//! one.

#[cfg(not(loom))]
use crate::sync::light_where_asymmetric;
use crate::sync::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, Mutex, Ordering, heavy, light, lock,
};

/// The state of a thread's request. Only the owner stores into it, except for `tid`.
// Two cache lines: the neighbour-line prefetcher would make two threads share one.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct ThreadRecord {
    /// The generation in which the current request began; 0 between requests.
    word: AtomicU64,
    /// The object that was called last, as [`Caller::object`]. Used for reports only, like
    /// `method`.
    object: AtomicU64,
    /// The method that was called last.
    method: AtomicU16,
    /// The object at whose switch the owner waits, as [`Caller::object`]; 0 if it does not wait.
    waits_for: AtomicU64,
    /// The Linux id of the owner; 0 while the record has no owner.
    tid: AtomicU32,
    /// Whether work is pending for the end of the request. Accessed by the owner only.
    owes: AtomicBool,
}

/// The caller of an object, and the call, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The Linux id of the calling thread.
    pub(crate) tid: u32,
    /// The id of the object, as one number.
    pub(crate) object: u64,
    /// The number of the method.
    pub(crate) method: u16,
}

/// The generation counter and the words of all threads.
#[derive(Debug)]
pub(crate) struct Generations {
    current: AtomicU64,
    records: Mutex<Vec<Record>>,
}

/// A record. Records are never freed, only passed on to the next thread, so that a reader of the
/// list needs no protection.
#[cfg(not(loom))]
pub(crate) type Record = &'static ThreadRecord;
#[cfg(loom)]
pub(crate) type Record = loom::sync::Arc<ThreadRecord>;

#[cfg(not(loom))]
fn new_record() -> Record {
    Box::leak(Box::new(ThreadRecord::idle()))
}
#[cfg(loom)]
fn new_record() -> Record {
    loom::sync::Arc::new(ThreadRecord::idle())
}

/// The state of a thread, from its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Within a request.
    Inside,
    /// Between two requests.
    Idle,
    /// The record has no owner.
    Unknown,
}

/// The word of the record that has no owner; generations never reach this value.
const NOBODY: u64 = 1 << 63;

/// Builds a record. Loom's atomics cannot be created in constants.
macro_rules! record {
    ($word:expr) => {
        ThreadRecord {
            word: AtomicU64::new($word),
            object: AtomicU64::new(0),
            method: AtomicU16::new(0),
            waits_for: AtomicU64::new(0),
            tid: AtomicU32::new(0),
            owes: AtomicBool::new(false),
        }
    };
}

impl ThreadRecord {
    fn idle() -> Self {
        record!(0)
    }

    /// Returns the record of threads that have none of their own for the fast path. No thread
    /// stores into it.
    #[cfg(not(loom))]
    pub(crate) const fn nobody() -> Self {
        record!(NOBODY)
    }

    /// Returns the Linux id of the owner.
    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Returns whether the owner is in a request.
    #[inline]
    pub(crate) fn inside(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Returns the owner's state. Called by the owner only.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn standing(&self) -> Standing {
        // As a signed number, one comparison distinguishes all three cases.
        match self.word.load(Ordering::Relaxed).cast_signed() {
            1.. => Standing::Inside,
            0 => Standing::Idle,
            _ => Standing::Unknown,
        }
    }

    /// As `enter`, for a thread that is idle and knows that barriers are asymmetric. Called by the
    /// owner only.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn begin(&self, generations: &Generations) {
        self.show(generations);
        light_where_asymmetric(); // Pairs with `heavy` in `advance`.
    }

    /// Begins a request unless the owner is in one. Returns whether it did, which the caller passes
    /// to `leave`. Called by the owner only.
    #[inline(always)]
    pub(crate) fn enter(&self, generations: &Generations) -> bool {
        let outermost = !self.inside();
        if outermost {
            self.show(generations);
            light(); // Pairs with `heavy` in `advance`: the word is seen, or the new table is.
        }
        outermost
    }

    #[inline(always)]
    fn show(&self, generations: &Generations) {
        let now = generations.current.load(Ordering::Relaxed);
        // Release: a thread that sees this generation also sees the end of the previous request.
        self.word.store(now, Ordering::Release);
    }

    /// Records the call for reports, in which a mix of two calls does no harm. Called by the owner
    /// only.
    #[inline(always)]
    pub(crate) fn note(&self, object: u64, method: u16) {
        self.object.store(object, Ordering::Relaxed);
        self.method.store(method, Ordering::Relaxed);
    }

    /// Records the object at whose switch the owner is about to wait, or 0 when it continues. For
    /// reports. Called by the owner only.
    pub(crate) fn wait_for(&self, object: u64) {
        self.waits_for.store(object, Ordering::Relaxed);
    }

    /// Returns whether work is pending for the end of the request. Called by the owner only.
    #[inline(always)]
    pub(crate) fn owes(&self) -> bool {
        self.owes.load(Ordering::Relaxed)
    }

    /// Records whether work is pending for the end of the request. Called by the owner only.
    pub(crate) fn set_owes(&self, owes: bool) {
        self.owes.store(owes, Ordering::Relaxed);
    }

    /// Ends the request that `enter` began. Called by the owner only.
    #[inline(always)]
    pub(crate) fn leave(&self, outermost: bool) {
        if outermost {
            self.word.store(0, Ordering::Release); // Pairs with the load in `stragglers`.
        }
    }

    fn straggler(&self, generation: u64) -> Option<Caller> {
        // Acquire pairs with the release store in `leave`.
        let word = self.word.load(Ordering::Acquire);
        (word != 0 && word < generation).then(|| Caller {
            tid: self.tid(),
            object: self.object.load(Ordering::Relaxed),
            method: self.method.load(Ordering::Relaxed),
        })
    }
}

impl Generations {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Generations { current: AtomicU64::new(1), records: Mutex::new(Vec::new()) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Generations { current: AtomicU64::new(1), records: Mutex::new(Vec::new()) }
    }

    /// Returns a record for a thread that has none.
    pub(crate) fn register(&self, tid: u32) -> Record {
        let mut records = lock(&self.records);
        let unused = records.iter().find(|r| r.tid.load(Ordering::Relaxed) == 0).cloned();
        let record = unused.unwrap_or_else(|| {
            let record = new_record();
            records.push(Record::clone(&record));
            record
        });
        record.tid.store(tid, Ordering::Relaxed);
        record
    }

    /// Releases the record of a thread that ends, along with any request that it is in.
    pub(crate) fn unregister(&self, record: &ThreadRecord) {
        let _records = lock(&self.records);
        record.word.store(0, Ordering::Release);
        record.tid.store(0, Ordering::Relaxed);
    }

    /// Begins a new generation and returns its number. Changes made before this call are complete
    /// for everyone once [`Self::passed`] returns true for that number.
    pub(crate) fn advance(&self) -> u64 {
        heavy(); // Pairs with `light` in `enter`.
        // Relaxed: the barrier before it orders it after the change of the table, and no thread
        // loads it to see anything else.
        self.current.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns whether every request that began before `generation` has ended.
    pub(crate) fn passed(&self, generation: u64) -> bool {
        lock(&self.records).iter().all(|r| r.straggler(generation).is_none())
    }

    /// Returns the object at whose switch a thread waits; 0 if it waits at none.
    pub(crate) fn waits_for(&self, tid: u32) -> u64 {
        let records = lock(&self.records);
        let record = records.iter().find(|r| r.tid() == tid);
        record.map_or(0, |r| r.waits_for.load(Ordering::Relaxed))
    }

    /// Returns the callers that are still in a request that began before `generation`.
    pub(crate) fn stragglers(&self, generation: u64) -> Vec<Caller> {
        lock(&self.records).iter().filter_map(|r| r.straggler(generation)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_holds_its_generation_and_no_later_one() {
        let generations = Generations::new();
        let record = generations.register(7);
        let outer = record.enter(&generations);
        record.note(3 << 32, 2);
        let first = generations.advance();
        assert!(!generations.passed(first));
        let expected = Caller { tid: 7, object: 3 << 32, method: 2 };
        assert_eq!(generations.stragglers(first), [expected]);
        let nested = record.enter(&generations); // the same request
        record.leave(nested);
        assert!(!generations.passed(first));
        record.leave(outer);
        assert!(generations.passed(first));
        let outer = record.enter(&generations);
        assert!(generations.passed(first), "a request that began later is not waited for");
        record.leave(outer);
    }

    #[test]
    fn the_record_of_a_thread_that_ended_is_used_again() {
        let generations = Generations::new();
        let record = generations.register(7);
        record.enter(&generations);
        generations.unregister(record);
        assert!(generations.passed(generations.advance()));
        assert!(std::ptr::eq(generations.register(8), record));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// A reader looks up the table within a request and uses what it has found; the writer replaces
    /// the entry, waits for the generation and then frees the old object. Loom's cells detect a use
    /// that is not ordered before the free.
    #[test]
    fn nothing_that_was_looked_up_is_freed_within_the_request() {
        loom::model(|| {
            let generations = Arc::new(Generations::new());
            let table = Arc::new(AtomicUsize::new(0));
            let objects = Arc::new([UnsafeCell::new(()), UnsafeCell::new(())]);
            let record = generations.register(1);

            let reader = {
                let (generations, table, objects) =
                    (generations.clone(), table.clone(), objects.clone());
                thread::spawn(move || {
                    let outer = record.enter(&generations);
                    let found = table.load(Ordering::Acquire);
                    objects[found].with(|_used| ());
                    record.leave(outer);
                })
            };

            table.store(1, Ordering::Release);
            let generation = generations.advance();
            if generations.passed(generation) {
                objects[0].with_mut(|_freed| ());
            }
            reader.join().unwrap();
            assert!(generations.passed(generation), "all requests have ended");
        });
    }

    /// As above, but the reader may have begun its next request when the writer looks. The
    /// generation in its word then also shows that the first request has ended.
    #[test]
    fn a_later_request_shows_the_end_of_the_one_before() {
        loom::model(|| {
            let generations = Arc::new(Generations::new());
            let table = Arc::new(AtomicUsize::new(0));
            let objects = Arc::new([UnsafeCell::new(()), UnsafeCell::new(())]);
            let record = generations.register(1);

            let reader = {
                let (generations, table, objects) =
                    (generations.clone(), table.clone(), objects.clone());
                let record = Record::clone(&record);
                thread::spawn(move || {
                    let outer = record.enter(&generations);
                    let found = table.load(Ordering::Acquire);
                    objects[found].with(|_used| ());
                    record.leave(outer);
                    record.enter(&generations)
                })
            };

            table.store(1, Ordering::Release);
            let generation = generations.advance();
            if generations.passed(generation) {
                objects[0].with_mut(|_freed| ());
            }
            record.leave(reader.join().unwrap());
            assert!(generations.passed(generation), "all requests have ended");
        });
    }
}
