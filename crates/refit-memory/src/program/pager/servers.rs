//! The threads that serve one program: a leader, and helpers as long as several threads of the
//! program fault at the same time.
//!
//! Only the leader sleeps on the userfaultfd. A helper polls for messages; if none arrives within
//! the spin time, it rests until it is called. So a program in which a single thread faults wakes a
//! single thread of refit's.
//!
//! If there are several threads, each is bound to a processor, and resolves the faults of the
//! program's threads that run there. The largest part of a fault's cost is waking a thread on
//! another processor. Left to the scheduler, two threads resolve no more faults than one.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use parking_lot::{Condvar, Mutex, MutexGuard};
use refit_sys::placement;
use refit_sys::processor::{self, Bound};

/// The number of faults, one after the other without a pause, from which the number of faulting
/// threads is determined.
const SAMPLE: usize = 8;
/// A helper that has resolved fewer faults than this before it rested was not needed.
const WORTHWHILE_FAULTS: usize = 2 * SAMPLE;
/// The maximum number of times that a helper is not called although it seems useful, because it was
/// not useful before.
const MAX_SKIPS: u32 = 64;

/// Returns the maximum number of threads that can serve at once: the processors available to this
/// process.
fn max_servers() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// The threads that serve.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// The number of those that do not rest.
    serving: AtomicUsize,
    helpers: Mutex<Helpers>,
    call: Condvar,
}

#[derive(Debug, Default)]
struct Helpers {
    all: usize,
    resting: usize,
    /// Calls that no helper has noticed yet.
    calls: usize,
    /// Processors to which a thread is bound.
    taken: Vec<usize>,
    dismissed: bool,
    /// The number of times that calling a helper is skipped since one last rested, and how many of
    /// these remain.
    period: u32,
    skip: u32,
}

impl Servers {
    /// Returns the number of threads that serve besides the caller.
    pub(super) fn others(&self) -> usize {
        // Relaxed, as everywhere here: the number of serving threads affects only the speed.
        self.serving.load(Relaxed)
    }

    /// Calls a helper, or creates one by `make`, because `threads` threads of the program fault at
    /// the same time.
    pub(super) fn called_by(&self, threads: usize, make: impl FnOnce() -> bool) {
        let others = self.others();
        if others + 1 >= threads.min(max_servers()) {
            return;
        }
        let mut helpers = self.helpers();
        if helpers.dismissed || helpers.calls > 0 {
            return;
        }
        if helpers.skip > 0 {
            helpers.skip -= 1;
            return;
        }
        if helpers.resting > 0 {
            helpers.calls += 1;
            self.call.notify_one();
        } else if helpers.all + 1 < max_servers() && make() {
            helpers.all += 1;
        } else {
            return;
        }
        self.serving.fetch_add(1, Relaxed);
    }

    /// Rests, as a helper that has resolved `resolved` faults, until it is called. Returns whether
    /// it was called, as opposed to dismissed.
    pub(super) fn rest(&self, resolved: usize) -> bool {
        self.serving.fetch_sub(1, Relaxed);
        let mut helpers = self.helpers();
        helpers.period =
            if resolved < WORTHWHILE_FAULTS { (2 * helpers.period + 1).min(MAX_SKIPS) } else { 0 };
        helpers.skip = helpers.period;
        helpers.resting += 1;
        self.call.wait_while(&mut helpers, |one| one.calls == 0 && !one.dismissed);
        helpers.resting -= 1;
        helpers.calls = helpers.calls.saturating_sub(1);
        !helpers.dismissed
    }

    /// Claims a processor. Returns whether no other thread had claimed it.
    fn claim(&self, processor: usize) -> bool {
        let mut helpers = self.helpers();
        let free = !helpers.taken.contains(&processor);
        if free {
            helpers.taken.push(processor);
        }
        free
    }

    /// Releases a processor that was [claimed](Self::claim).
    fn leave(&self, processor: usize) {
        let mut helpers = self.helpers();
        if let Some(at) = helpers.taken.iter().position(|taken| *taken == processor) {
            helpers.taken.swap_remove(at);
        }
    }

    fn helpers(&self) -> MutexGuard<'_, Helpers> {
        // Each change is one assignment.
        self.helpers.lock()
    }
}

/// A guard: when it is dropped, even by a panic, no helper is called any more, and those that rest
/// end.
pub(super) struct HelperGuard<'a>(pub(super) &'a Servers);

impl Drop for HelperGuard<'_> {
    fn drop(&mut self) {
        self.0.helpers().dismissed = true;
        self.0.call.notify_all();
    }
}

/// The binding of a serving thread to a processor, if there is one for it.
pub(super) struct Binding<'a> {
    _kept: Option<(Claimed<'a>, Bound)>,
}

/// A processor that a thread has claimed.
struct Claimed<'a> {
    servers: &'a Servers,
    processor: usize,
}

impl<'a> Binding<'a> {
    /// Binds the caller to the processor on which a thread of the program waits or, if that is
    /// claimed, to the next free one.
    pub(super) fn near(servers: &'a Servers, thread: u32) -> Self {
        let wanted = placement::processor_of(thread).unwrap_or_else(processor::current);
        let claimed = |processor| servers.claim(processor).then(|| Claimed { servers, processor });
        let bound = |claimed: Claimed<'a>| Bound::to(claimed.processor).map(|to| (claimed, to));
        let mut all = (wanted..processor::count()).chain(0..wanted);
        Self { _kept: all.find_map(|processor| claimed(processor).and_then(bound)) }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.servers.leave(self.processor);
    }
}

/// The threads of the last faults that one server has seen.
#[derive(Debug, Default)]
pub(super) struct FaultSampler {
    threads: [u32; SAMPLE],
    count: usize,
}

impl FaultSampler {
    /// Records a fault of a thread, without a pause since the one before. Returns the number of
    /// distinct threads each time that it is known.
    pub(super) fn note(&mut self, thread: u32) -> Option<usize> {
        self.threads[self.count] = thread;
        self.count += 1;
        if self.count < SAMPLE {
            return None;
        }
        self.count = 0;
        self.threads.sort_unstable();
        Some(self.threads.chunk_by(|one, next| one == next).count())
    }

    /// Records a pause.
    pub(super) fn forget(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_made_once_called_again_and_let_go_at_the_end() {
        if max_servers() < 2 {
            println!("skipped: one processor");
            return;
        }
        let servers = Servers::default();
        servers.called_by(1, || panic!("one thread needs no help"));
        servers.called_by(2, || false);
        assert_eq!(servers.others(), 0, "there could be none");
        servers.called_by(2, || true);
        servers.called_by(2, || panic!("it is there, and two are enough"));
        assert_eq!(servers.others(), 1);
        thread::scope(|scope| {
            let shift = HelperGuard(&servers);
            for resolved in [0, 0, WORTHWHILE_FAULTS] {
                let servers = &servers;
                let helper = scope.spawn(move || servers.rest(resolved));
                while !helper.is_finished() {
                    servers.called_by(2, || false);
                    thread::yield_now();
                }
                assert!(helper.join().expect("it was called"));
            }
            let helper = scope.spawn(|| servers.rest(0));
            drop(shift);
            assert!(!helper.join().expect("it is dismissed"));
            servers.called_by(2, || panic!("it is dismissed"));
        });
    }

    /// The number of calls it takes to wake a helper doubles each time that it was not needed.
    #[test]
    fn a_helper_that_was_not_needed_is_called_less_often() {
        if max_servers() < 2 {
            println!("skipped: one processor");
            return;
        }
        let servers = Servers::default();
        servers.called_by(2, || true);
        thread::scope(|scope| {
            let shift = HelperGuard(&servers);
            let mut calls = Vec::new();
            let few = [WORTHWHILE_FAULTS - 1; 8];
            for resolved in few.into_iter().chain([WORTHWHILE_FAULTS, 0]) {
                let servers = &servers;
                let helper = scope.spawn(move || servers.rest(resolved));
                while servers.helpers().resting == 0 {
                    thread::yield_now();
                }
                let before = (0..).take_while(|_| {
                    servers.called_by(2, || panic!("there is one"));
                    servers.others() == 0
                });
                calls.push(before.count());
                assert!(helper.join().expect("it was called"));
            }
            assert_eq!(calls, [1, 3, 7, 15, 31, 63, 64, 64, 0, 1]);
            drop(shift);
        });
    }

    #[test]
    fn nobody_keeps_to_a_processor_that_is_taken() {
        let servers = Servers::default();
        assert!(servers.claim(1) && !servers.claim(1) && servers.claim(0));
        drop(Claimed { servers: &servers, processor: 1 });
        assert!(servers.claim(1));
    }

    #[test]
    fn each_server_is_bound_to_a_processor_of_its_own_as_long_as_there_are_some() {
        let servers = Servers::default();
        let near = || Binding::near(&servers, refit_sys::thread::id());
        thread::scope(|scope| {
            // A thread of its own, since it stays bound otherwise.
            let bound = scope.spawn(|| {
                let all: Vec<_> = (0..=processor::count()).map(|_| near()).collect();
                let taken = servers.helpers().taken.clone();
                (all.iter().filter(|one| one._kept.is_some()).count(), taken)
            });
            let (bound, mut taken) = bound.join().expect("it binds itself");
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), bound, "no processor twice");
            assert!((1..=processor::count()).contains(&bound));
        });
        assert!(servers.helpers().taken.is_empty(), "all of them are released");
    }

    #[test]
    fn threads_are_counted_where_no_rest_is_between_their_faults() {
        let mut seen = FaultSampler::default();
        let mut note = |threads: &[u32]| threads.iter().filter_map(|&one| seen.note(one)).last();
        assert_eq!(note(&[7; SAMPLE - 1]), None);
        assert_eq!(note(&[8]), Some(2));
        assert_eq!(note(&[1, 2, 3, 1, 2, 3, 1, 2]), Some(3));
        note(&[1, 2, 3]);
        seen.forget();
        assert_eq!((0..SAMPLE).filter_map(|_| seen.note(5)).last(), Some(1));
    }
}
