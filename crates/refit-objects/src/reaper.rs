//! The reaper: the thread that frees garbage that no other thread frees, and the protocol by which
//! it is woken.
//!
//! Waking a thread is a system call, which costs more than a deferral. So a thread wakes the reaper
//! only if it sleeps, and a reaper that is awake polls the [`Limbo`].
//!
//! # Why the reaper does not sleep while there is garbage
//!
//! A thread puts garbage into the limbo first, and wakes the reaper then. Before the reaper sleeps
//! it looks into the limbo with `state` locked. If the thread gets that lock first, the reaper
//! finds the garbage. If the reaper gets it first, the thread finds it asleep, and wakes it.
//!
//! # Locks, in the order in which they are taken
//!
//! | lock | protects |
//! |---|---|
//! | `state` | whether the reaper is awake, and whether it has a thread |
//! | those of the [`Limbo`] | the garbage |

use crate::generation::Generations;
use crate::limbo::{Garbage, Limbo};
use crate::sync::{Condvar, Mutex, lock, wait};

/// The maximum number of deferred objects that share a barrier.
const MAX_DEFERRED: usize = 256;

/// The limbo, and the thread that empties it.
pub(crate) struct Reaper {
    pub(crate) limbo: Limbo,
    state: Mutex<State>,
    wanted: Condvar,
}

struct State {
    /// Whether it looks again before it sleeps.
    awake: bool,
    thread: Thread,
}

/// The state of the reaper's thread.
enum Thread {
    /// Not needed yet.
    None,
    Lives,
    /// Not available: the process may not have more threads.
    Refused,
}

impl Reaper {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        let state = Mutex::new(State { awake: false, thread: Thread::None });
        Reaper { limbo: Limbo::new(), state, wanted: Condvar::new() }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let state = Mutex::new(State { awake: false, thread: Thread::None });
        Reaper { limbo: Limbo::new(), state, wanted: Condvar::new() }
    }

    /// Frees `garbage` when all current requests have ended. `begin` starts the reaper's thread,
    /// and returns whether that was possible.
    pub(crate) fn retire(
        &self,
        generations: &Generations,
        garbage: Garbage,
        begin: impl FnOnce() -> bool,
    ) {
        self.limbo.retire(generations, garbage);
        self.limbo.collect(generations);
        if !self.limbo.is_empty() {
            self.wake(begin);
        }
    }

    /// Frees `garbage` some time after all current requests have ended, without a barrier now,
    /// unless there is no reaper. `begin` is as for [`Self::retire`].
    pub(crate) fn defer(
        &self,
        generations: &Generations,
        garbage: Garbage,
        begin: impl FnOnce() -> bool,
    ) {
        if self.limbo.defer(garbage) >= MAX_DEFERRED || !self.wake(begin) {
            self.limbo.advance(generations);
            self.limbo.collect(generations);
        }
    }

    /// Makes the reaper look soon. Returns false if there is none.
    fn wake(&self, begin: impl FnOnce() -> bool) -> bool {
        let mut state = lock(&self.state);
        if state.awake {
            return true;
        }
        if matches!(state.thread, Thread::None) {
            state.thread = if begin() { Thread::Lives } else { Thread::Refused };
        }
        state.awake = matches!(state.thread, Thread::Lives);
        if state.awake {
            self.wanted.notify_one();
        }
        state.awake
    }

    /// Sleeps until there is garbage. Called by the reaper's thread only.
    pub(crate) fn sleep(&self) {
        let mut state = lock(&self.state);
        // A thread that defers from here on finds it asleep; everything deferred before is seen
        // here.
        state.awake = !self.limbo.is_empty();
        while !state.awake {
            state = wait(&self.wanted, state);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;

    /// A reaper that has been started but does not run yet.
    fn busy() -> bool {
        true
    }

    #[test]
    fn no_more_is_deferred_than_shares_a_barrier() {
        let (reaper, generations) = (Reaper::new(), Generations::new());
        let alive = Arc::new(());
        for deferred in 1..MAX_DEFERRED {
            reaper.defer(&generations, Box::new(Arc::clone(&alive)), busy);
            assert_eq!(reaper.limbo.len(), deferred, "the reaper's");
        }
        reaper.defer(&generations, Box::new(Arc::clone(&alive)), busy);
        assert_eq!((reaper.limbo.len(), Arc::strong_count(&alive)), (0, 1));
    }

    /// The process may not have another thread: each thread frees the garbage that it can free.
    #[test]
    fn without_a_reaper_what_is_deferred_is_freed_at_once() {
        let (reaper, generations) = (Reaper::new(), Generations::new());
        let record = generations.register(7);
        let begun = Cell::new(0);
        let begin = || {
            begun.set(begun.get() + 1);
            false
        };
        let alive = Arc::new(());
        for _ in 0..2 {
            reaper.defer(&generations, Box::new(Arc::clone(&alive)), begin);
            assert_eq!((reaper.limbo.len(), Arc::strong_count(&alive)), (0, 1));
        }
        let outermost = record.enter(&generations);
        reaper.defer(&generations, Box::new(Arc::clone(&alive)), begin);
        assert_eq!((reaper.limbo.len(), Arc::strong_count(&alive)), (1, 2), "in use");
        record.leave(outermost);
        reaper.defer(&generations, Box::new(()), begin);
        assert_eq!((reaper.limbo.len(), Arc::strong_count(&alive)), (0, 1));
        assert_eq!(begun.get(), 1, "tried once");
    }

    /// Garbage that a request keeps alive has a reaper.
    #[test]
    fn a_reaper_begins_when_something_is_left_to_it() {
        let (reaper, generations) = (Reaper::new(), Generations::new());
        let record = generations.register(7);
        let begun = Cell::new(0);
        let begin = || {
            begun.set(begun.get() + 1);
            true
        };
        reaper.retire(&generations, Box::new(()), begin);
        assert_eq!((reaper.limbo.len(), begun.get()), (0, 0), "nothing is left");
        let outermost = record.enter(&generations);
        reaper.retire(&generations, Box::new(()), begin);
        assert_eq!((reaper.limbo.len(), begun.get()), (1, 1));
        reaper.defer(&generations, Box::new(()), begin);
        assert_eq!((reaper.limbo.len(), begun.get()), (2, 1), "there is one already");
        record.leave(outermost);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// The ways in which garbage gets there while a request is open, so that it is left.
    type Leave = fn(&Reaper, &Generations);

    /// A thread leaves garbage while the reaper goes to sleep. If the reaper slept in spite of it,
    /// no thread would ever wake it: loom reports threads that wait forever.
    #[test]
    fn a_reaper_does_not_sleep_while_there_is_garbage() {
        let ways: [Leave; 2] = [
            |reaper, generations| reaper.defer(generations, Box::new(()), || unreachable!()),
            |reaper, generations| reaper.retire(generations, Box::new(()), || unreachable!()),
        ];
        for leave in ways {
            loom::model(move || {
                let model = Arc::new((Reaper::new(), Generations::new()));
                let record = model.1.register(1);
                assert!(model.0.wake(|| true), "it has begun, and found nothing so far");
                let reaper = {
                    let model = Arc::clone(&model);
                    thread::spawn(move || {
                        model.0.sleep();
                        assert!(!model.0.limbo.is_empty(), "woken for nothing");
                    })
                };
                let outermost = record.enter(&model.1);
                leave(&model.0, &model.1);
                reaper.join().unwrap();
                record.leave(outermost);
            });
        }
    }
}
