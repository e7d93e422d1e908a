//! The limbo: holds objects that are no longer reachable until no request can use them any more.
//!
//! # Idea
//!
//! K42 frees through the same generations (Hui 2000, §3.3.3). Beginning a generation costs a heavy
//! barrier, half a microsecond to more than one. For something that is cheap to replace (a layer of
//! wrappers), the barrier would cost more than the change. So the limbo has two queues. Objects in
//! `deferred` have no generation yet; the next generation that begins, for whatever reason,
//! includes all of them. Objects in `waiting` are freed when their generation has passed.
//!
//! # Why this holds
//!
//! An object is deferred after the table's entries were pointed away from it. `advance` takes the
//! deferred objects out, under their lock, *before* it begins the generation; so all those stores
//! happened before its heavy barrier, and the proof in `generation` covers them: once that
//! generation has passed, no request can hold a pointer to any of them.
//!
//! # Why no object is overlooked
//!
//! Objects move from `deferred` to `waiting` while `waiting` is locked throughout. A thread that
//! checks whether the limbo is empty locks `waiting` first, too, so it never misses objects that
//! are being moved. The reaper relies on that: it sleeps if the limbo is empty. The locks are taken
//! in the order `waiting`, `deferred`.

use std::collections::VecDeque;

use crate::generation::Generations;
use crate::sync::{Mutex, lock};

/// A value that frees whatever it holds when it is dropped.
pub(crate) type Garbage = Box<dyn Send>;

/// Frees garbage. A panic in its destructor is caught, so that the thread that frees it continues.
#[cfg(not(loom))]
fn free(garbage: Garbage) {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let _ = catch_unwind(AssertUnwindSafe(|| drop(garbage)));
}

/// Frees garbage in a model, in which loom reports by panicking.
#[cfg(loom)]
fn free(garbage: Garbage) {
    drop(garbage);
}

/// Unreachable objects, before and after a generation has begun for them.
pub(crate) struct Limbo {
    /// Unreachable, without a generation yet.
    deferred: Mutex<Vec<Garbage>>,
    /// Freed when this generation has passed.
    waiting: Mutex<VecDeque<(u64, Vec<Garbage>)>>,
}

impl Limbo {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Limbo { deferred: Mutex::new(Vec::new()), waiting: Mutex::new(VecDeque::new()) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Limbo { deferred: Mutex::new(Vec::new()), waiting: Mutex::new(VecDeque::new()) }
    }

    /// Adds garbage without a barrier. Returns the number of deferred objects.
    pub(crate) fn defer(&self, garbage: Garbage) -> usize {
        let mut deferred = lock(&self.deferred);
        deferred.push(garbage);
        deferred.len()
    }

    /// Begins a generation for all deferred objects. Does nothing if there are none.
    pub(crate) fn advance(&self, generations: &Generations) {
        let mut waiting = lock(&self.waiting);
        let batch = std::mem::take(&mut *lock(&self.deferred));
        if !batch.is_empty() {
            waiting.push_back((generations.advance(), batch));
        }
    }

    /// Retires garbage together with everything that was deferred.
    pub(crate) fn retire(&self, generations: &Generations, garbage: Garbage) {
        let mut waiting = lock(&self.waiting);
        let mut batch = std::mem::take(&mut *lock(&self.deferred));
        batch.push(garbage);
        waiting.push_back((generations.advance(), batch));
    }

    /// Begins a generation for any purpose and returns its number. Deferred garbage waits for it
    /// too.
    pub(crate) fn take_along(&self, generations: &Generations) -> u64 {
        let mut waiting = lock(&self.waiting);
        let batch = std::mem::take(&mut *lock(&self.deferred));
        if batch.is_empty() {
            drop(waiting);
            return generations.advance();
        }
        let generation = generations.advance();
        waiting.push_back((generation, batch));
        generation
    }

    /// Frees everything whose generation has passed.
    pub(crate) fn collect(&self, generations: &Generations) {
        loop {
            let due = {
                let mut waiting = lock(&self.waiting);
                match waiting.front() {
                    Some((generation, _)) if generations.passed(*generation) => waiting.pop_front(),
                    _ => None,
                }
            };
            let Some((_, batch)) = due else { return };
            // Outside of the lock: destructors may retire more.
            batch.into_iter().for_each(free);
        }
    }

    /// Returns whether the limbo is empty.
    pub(crate) fn is_empty(&self) -> bool {
        let waiting = lock(&self.waiting);
        waiting.is_empty() && lock(&self.deferred).is_empty()
    }

    /// Returns the number of objects in the limbo.
    pub(crate) fn len(&self) -> usize {
        let waiting = lock(&self.waiting);
        let waits: usize = waiting.iter().map(|(_, batch)| batch.len()).sum();
        waits + lock(&self.deferred).len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// However garbage enters the limbo, a request that was open then keeps it alive, and one that
    /// began later does not.
    #[test]
    fn nothing_is_freed_while_a_request_is_open_that_began_before() {
        type Way = fn(&Limbo, &Generations, Garbage);
        let ways: [(&str, Way); 3] = [
            ("retire", |limbo, generations, garbage| limbo.retire(generations, garbage)),
            ("defer, advance", |limbo, generations, garbage| {
                limbo.defer(garbage);
                limbo.advance(generations);
            }),
            ("defer, take along", |limbo, generations, garbage| {
                limbo.defer(garbage);
                limbo.take_along(generations);
            }),
        ];
        for (name, way) in ways {
            let (limbo, generations) = (Limbo::new(), Generations::new());
            let (before, later) = (generations.register(7), generations.register(8));
            let open = before.enter(&generations);
            let alive = Arc::new(());
            way(&limbo, &generations, Box::new(Arc::clone(&alive)));
            let outer = later.enter(&generations);
            limbo.collect(&generations);
            assert_eq!(Arc::strong_count(&alive), 2, "{name}: a request can still use it");
            assert_eq!((limbo.len(), limbo.is_empty()), (1, false), "{name}");
            before.leave(open);
            limbo.collect(&generations);
            assert_eq!(Arc::strong_count(&alive), 1, "{name}: nobody can use it any more");
            assert_eq!((limbo.len(), limbo.is_empty()), (0, true), "{name}");
            later.leave(outer);
        }
    }

    /// Garbage that was deferred before another thread retires something is freed with that, and
    /// not without it.
    #[test]
    fn what_was_deferred_goes_with_what_is_retired() {
        let (limbo, generations) = (Limbo::new(), Generations::new());
        let alive = Arc::new(());
        assert_eq!(limbo.defer(Box::new(Arc::clone(&alive))), 1);
        assert_eq!(limbo.defer(Box::new(Arc::clone(&alive))), 2);
        limbo.collect(&generations);
        assert_eq!(Arc::strong_count(&alive), 3, "no generation has begun for it");
        limbo.retire(&generations, Box::new(Arc::clone(&alive)));
        assert_eq!(limbo.len(), 3);
        limbo.collect(&generations);
        assert_eq!((Arc::strong_count(&alive), limbo.len()), (1, 0));
    }

    /// The thread that frees garbage survives a panicking destructor and frees the rest.
    #[test]
    fn what_panics_when_it_is_freed_holds_up_nobody() {
        struct Panicking;
        impl Drop for Panicking {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let (limbo, generations) = (Limbo::new(), Generations::new());
        let alive = Arc::new(());
        limbo.defer(Box::new(Panicking));
        limbo.retire(&generations, Box::new(Arc::clone(&alive)));
        limbo.collect(&generations);
        assert_eq!((Arc::strong_count(&alive), limbo.len()), (1, 0));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// The reaper sleeps when the limbo is empty. Garbage for which another thread is just
    /// beginning a generation would then wait until something happens to wake the reaper.
    #[test]
    fn what_goes_from_one_place_to_the_other_is_never_out_of_sight() {
        type Way = fn(&Limbo, &Generations);
        let ways: [Way; 2] = [Limbo::advance, |limbo, generations| {
            limbo.take_along(generations);
        }];
        for way in ways {
            loom::model(move || {
                let model = Arc::new((Limbo::new(), Generations::new()));
                model.0.defer(Box::new(()));
                let other = {
                    let model = Arc::clone(&model);
                    thread::spawn(move || way(&model.0, &model.1))
                };
                assert!(!model.0.is_empty(), "nothing has been freed");
                assert_eq!(model.0.len(), 1, "and it is here once");
                other.join().unwrap();
            });
        }
    }
}
