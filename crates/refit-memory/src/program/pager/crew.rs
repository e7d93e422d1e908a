//! The threads that serve one program: one, and others that help as long as several threads of the program miss pages at once.
//!
//! One alone waits for messages. A helper looks for them as long as some come in a moment, and rests then until it is called: so a
//! program of which one thread misses pages wakes one of ours, and no more.
//!
//! Several keep to a processor each, where they resolve the faults of the program's threads that run there: of all that a fault costs, what
//! it costs to wake a thread on another processor is the most. Left to the scheduler, two resolve no more faults than one.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use refit_sys::placement;
use refit_sys::processor::{self, Bound};

/// Faults, one behind the other without any rest between them, by which it is known how many threads miss pages.
const LOOKED_AT: usize = 8;
/// A helper that has resolved fewer faults than this before it rested was not needed.
const WORTH: usize = 2 * LOOKED_AT;
/// How often at most help is not called although it seems to be of use, since it was not.
const RAREST: u32 = 64;

/// How many can serve at once: the processors that there are for us.
fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Who serves.
#[derive(Debug, Default)]
pub(super) struct Crew {
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
        if others + 1 >= threads.min(most()) {
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
        } else if helpers.all + 1 < most() && make() {
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

    /// Whether nobody else keeps to this processor; nobody else does from now on.
    fn claim(&self, processor: usize) -> bool {
        let mut helpers = self.helpers();
        let free = !helpers.taken.contains(&processor);
        if free {
            helpers.taken.push(processor);
        }
        free
    }

    /// One that was [claimed](Self::claim) may be another's.
    fn leave(&self, processor: usize) {
        let mut helpers = self.helpers();
        if let Some(at) = helpers.taken.iter().position(|taken| *taken == processor) {
            helpers.taken.swap_remove(at);
        }
    }

    fn helpers(&self) -> MutexGuard<'_, Helpers> {
        // Each change is one assignment.
        self.helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When this is dropped, however whoever has it ends, nobody is called any more, and who rests ends.
pub(super) struct Shift<'a>(pub(super) &'a Crew);

impl Drop for Shift<'_> {
    fn drop(&mut self) {
        self.0.helpers().over = true;
        self.0.call.notify_all();
    }
}

/// The processor that one who serves keeps to; `None`: there is none for it.
pub(super) struct Post<'a> {
    _kept: Option<(Claimed<'a>, Bound)>,
}

/// A processor that nobody else keeps to.
struct Claimed<'a> {
    crew: &'a Crew,
    processor: usize,
}

impl<'a> Post<'a> {
    /// Where this thread of the program waits, unless somebody is there already.
    pub(super) fn near(crew: &'a Crew, thread: u32) -> Self {
        let wanted = placement::processor_of(thread).unwrap_or_else(processor::current);
        let claimed = |processor| crew.claim(processor).then(|| Claimed { crew, processor });
        let bound = |claimed: Claimed<'a>| Bound::to(claimed.processor).map(|to| (claimed, to));
        let mut all = (wanted..processor::count()).chain(0..wanted);
        Self { _kept: all.find_map(|processor| claimed(processor).and_then(bound)) }
    }
}

impl Drop for Claimed<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_made_once_called_again_and_let_go_at_the_end() {
        if most() < 2 {
            println!("skipped: one processor");
            return;
        }
        let crew = Crew::default();
        crew.called_by(1, || panic!("one thread needs no help"));
        crew.called_by(2, || false);
        assert_eq!(crew.others(), 0, "there could be none");
        crew.called_by(2, || true);
        crew.called_by(2, || panic!("it is there, and two are enough"));
        assert_eq!(crew.others(), 1);
        thread::scope(|scope| {
            let shift = Shift(&crew);
            for resolved in [0, 0, WORTH] {
                let crew = &crew;
                let helper = scope.spawn(move || crew.rest(resolved));
                while !helper.is_finished() {
                    crew.called_by(2, || false);
                    thread::yield_now();
                }
                assert!(helper.join().expect("it was called"));
            }
            let helper = scope.spawn(|| crew.rest(0));
            drop(shift);
            assert!(!helper.join().expect("it is over"));
            crew.called_by(2, || panic!("it is over"));
        });
    }

    #[test]
    fn nobody_keeps_to_a_processor_that_is_taken() {
        let crew = Crew::default();
        assert!(crew.claim(1) && !crew.claim(1) && crew.claim(0));
        drop(Claimed { crew: &crew, processor: 1 });
        assert!(crew.claim(1));
    }

    #[test]
    fn threads_are_counted_where_no_rest_is_between_their_faults() {
        let mut seen = Seen::default();
        let mut note = |threads: &[u32]| threads.iter().filter_map(|&one| seen.note(one)).last();
        assert_eq!(note(&[7; LOOKED_AT - 1]), None);
        assert_eq!(note(&[8]), Some(2));
        assert_eq!(note(&[1, 2, 3, 1, 2, 3, 1, 2]), Some(3));
        note(&[1, 2, 3]);
        seen.forget();
        assert_eq!((0..LOOKED_AT).filter_map(|_| seen.note(5)).last(), Some(1));
    }
}
