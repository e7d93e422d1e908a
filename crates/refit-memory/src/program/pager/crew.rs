//! The threads that serve one program: one, and others that help as long as several threads of the program miss pages at once.
//!
//! One alone waits for messages. A helper looks for them as long as some come in a moment, and rests then until it is called: so a
//! program of which one thread misses pages wakes one of ours, and no more.
//!
//! Several keep to a processor each, where they resolve the faults of the program's threads that run there: of all that a fault costs, what
//! it costs to wake a thread on another processor is the most. Left to the scheduler, two resolve no more faults than one.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use refit_sys::linger::Linger;
use refit_sys::placement;
use refit_sys::processor::{self, Bound};

/// Faults, one behind the other without any rest between them, by which it is known how many threads miss pages.
const LOOKED_AT: usize = 8;
/// A helper that has resolved fewer faults than this before it rested was not needed.
const WORTH: usize = 2 * LOOKED_AT;
/// How often at most help is not called although it seems to be of use, since it was not.
const RAREST: u32 = 64;

/// Who serves.
#[derive(Debug, Default)]
pub(super) struct Crew {
    pub(super) linger: Linger,
    /// Those that do not rest.
    serving: AtomicUsize,
    helpers: Mutex<Helpers>,
    call: Condvar,
}

#[derive(Debug, Default)]
struct Helpers {
    all: usize,
    resting: usize,
    /// Calls that no helper has heard yet.
    calls: usize,
    /// Processors that somebody keeps to.
    taken: Vec<usize>,
    over: bool,
    /// Times that help is not called before it is, the next time and now.
    period: u32,
    skip: u32,
}

impl Crew {
    /// How many serve besides who asks.
    pub(super) fn others(&self) -> usize {
        // Relaxed, as everywhere here: how many serve decides nothing but how fast it goes.
        self.serving.load(Relaxed)
    }

    /// Threads of the program, so many, miss pages at once: calls a helper, or has one made.
    pub(super) fn called_by(&self, threads: usize, make: impl FnOnce() -> bool) {
        let others = self.others();
        if others + 1 >= threads.min(processor::count()) {
            return;
        }
        let mut helpers = self.helpers();
        if helpers.over || helpers.calls > 0 {
            return;
        }
        if helpers.skip > 0 {
            helpers.skip -= 1;
            return;
        }
        if helpers.resting > 0 {
            helpers.calls += 1;
            self.call.notify_one();
        } else if helpers.all + 1 < processor::count() && make() {
            helpers.all += 1;
        } else {
            return;
        }
        self.serving.fetch_add(1, Relaxed);
    }

    /// A helper that has resolved so many faults rests until it is called; whether it was.
    pub(super) fn rest(&self, resolved: usize) -> bool {
        self.serving.fetch_sub(1, Relaxed);
        let mut helpers = self.helpers();
        helpers.period = if resolved < WORTH { (2 * helpers.period + 1).min(RAREST) } else { 0 };
        helpers.skip = helpers.period;
        helpers.resting += 1;
        let waited = self.call.wait_while(helpers, |one| one.calls == 0 && !one.over);
        let mut helpers = waited.unwrap_or_else(PoisonError::into_inner);
        helpers.resting -= 1;
        helpers.calls = helpers.calls.saturating_sub(1);
        !helpers.over
    }

    /// A processor that nobody else keeps to, `wanted` if that is so.
    fn claim(&self, wanted: usize) -> usize {
        let mut helpers = self.helpers();
        let all = (0..processor::count()).map(|more| (wanted + more) % processor::count());
        let free = all.into_iter().find(|one| !helpers.taken.contains(one)).unwrap_or(wanted);
        helpers.taken.push(free);
        free
    }

    /// One that was [claimed](Self::claim) may be another's.
    fn leave(&self, processor: usize) {
        let mut helpers = self.helpers();
        if let Some(at) = helpers.taken.iter().position(|taken| *taken == processor) {
            helpers.taken.swap_remove(at);
        }
    }

    /// Nobody is called any more, and who rests ends.
    pub(super) fn dismiss(&self) {
        self.helpers().over = true;
        self.call.notify_all();
    }

    fn helpers(&self) -> MutexGuard<'_, Helpers> {
        // Each change is one assignment.
        self.helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The processor that one who serves keeps to.
pub(super) struct Post<'a> {
    crew: &'a Crew,
    processor: usize,
    /// `None`: it may not.
    _bound: Option<Bound>,
}

impl<'a> Post<'a> {
    /// Where this thread of the program waits, unless somebody is there already.
    pub(super) fn near(crew: &'a Crew, thread: u32) -> Self {
        let wanted = placement::processor_of(thread).unwrap_or_else(processor::current);
        let processor = crew.claim(wanted);
        Self { crew, processor, _bound: Bound::to(processor) }
    }
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        self.crew.leave(self.processor);
    }
}

/// The threads that missed pages last, as one server has seen them.
#[derive(Debug, Default)]
pub(super) struct Seen {
    threads: [u32; LOOKED_AT],
    count: usize,
}

impl Seen {
    /// A thread has missed a page, without a rest since the one before; how many do, each time when that is known.
    pub(super) fn note(&mut self, thread: u32) -> Option<usize> {
        self.threads[self.count] = thread;
        self.count += 1;
        if self.count < LOOKED_AT {
            return None;
        }
        self.count = 0;
        self.threads.sort_unstable();
        Some(self.threads.chunk_by(|one, next| one == next).count())
    }

    /// There was a rest.
    pub(super) fn forget(&mut self) {
        self.count = 0;
    }
}
