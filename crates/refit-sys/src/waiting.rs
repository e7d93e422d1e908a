//! A list of work that waits until something has changed, with a counter of rings. After each ring,
//! the work is tried again.
//!
//! # Why nothing waits for ever
//!
//! A thread that frees something rings afterwards; one thread hears each ring, and tries everything
//! that waits. Work that has found nothing free, but is not in the list yet, must not miss such a
//! ring. So the thread that adds it compares the number of rings with the number before the try. If
//! it has changed, the thread has to ring again. If not, every further ring comes after that
//! comparison, and the thread that hears it takes the list under the lock under which the work was
//! added before: a thread that had taken that lock earlier, after a ring, would have passed on the
//! number of that ring with it.
//!
//! The model below fails without the comparison.

use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// A list of waiting work.
#[derive(Debug, Default)]
pub struct Waiting<T> {
    all: Mutex<Vec<T>>,
    rung: AtomicBool,
    rings: AtomicU64,
}

impl<T> Waiting<T> {
    /// Returns the number of rings so far. Everything that was freed before those is visible
    /// afterwards.
    pub fn rings(&self) -> u64 {
        // Pairs with `ring`.
        self.rings.load(Ordering::Acquire)
    }

    /// Adds work that was tried when the number of rings was `rings`. Returns whether the caller
    /// must ring again, because there was a ring in the meantime.
    #[must_use]
    pub fn add(&self, one: T, rings: u64) -> bool {
        self.lock().push(one);
        self.rings() != rings
    }

    /// Rings. Returns whether no thread has noticed yet, so that the caller has to wake a sleeping
    /// one.
    #[must_use]
    pub fn ring(&self) -> bool {
        // Pairs with the loads in `rings` and `heard`, which make visible what was freed.
        self.rings.fetch_add(1, Ordering::Release);
        !self.rung.swap(true, Ordering::AcqRel)
    }

    /// Returns whether there was a ring, which no other thread hears then.
    pub fn heard(&self) -> bool {
        // Pairs with `ring`. The load before the swap does not take the cache line from others.
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// Takes all waiting work.
    pub fn take(&self, into: &mut Vec<T>) {
        into.append(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // A panic cannot leave it half-changed.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_was_rung_for_between_a_try_and_its_wait_is_told() {
        let waiting = Waiting::default();
        let rings = waiting.rings();
        assert!(!waiting.add(1, rings));
        assert!(waiting.ring());
        assert!(!waiting.ring(), "somebody knows of it");
        assert!(waiting.add(2, rings));
        assert!(waiting.heard());
        assert!(!waiting.heard());
        let mut all = Vec::new();
        waiting.take(&mut all);
        assert_eq!(all, [1, 2]);
    }
}

/// Two threads serve; a third frees what one of them tries to get.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[derive(Default)]
    struct World {
        waiting: Waiting<u64>,
        free: AtomicU64,
        done: AtomicU64,
    }

    impl World {
        /// Runs one round of a server. Returns whether there was nothing left to hear.
        fn serve(&self, mut tries: Vec<u64>) {
            loop {
                for one in tries.drain(..) {
                    let rings = self.waiting.rings();
                    // Relaxed, as the budget is: a thread that sees the ring sees it.
                    if self.free.load(Ordering::Relaxed) > 0 {
                        self.done.fetch_add(1, Ordering::Relaxed);
                    } else if self.waiting.add(one, rings) {
                        let _ = self.waiting.ring();
                    }
                }
                if !self.waiting.heard() {
                    return;
                }
                self.waiting.take(&mut tries);
            }
        }
    }

    #[test]
    fn what_is_freed_is_had_by_who_waits_for_it() {
        loom::model(|| {
            let world = Arc::new(World::default());
            let (one, other) = (Arc::clone(&world), Arc::clone(&world));
            // It hears a ring, possibly before the work that the other one tries has been added.
            let listens = thread::spawn(move || one.serve(Vec::new()));
            let tries = thread::spawn(move || other.serve(vec![7]));
            world.free.store(1, Ordering::Relaxed);
            let _ = world.waiting.ring();
            listens.join().unwrap();
            tries.join().unwrap();
            // A ring that nobody has heard yet wakes a sleeping thread.
            world.serve(Vec::new());
            assert_eq!(world.done.load(Ordering::Relaxed), 1);
        });
    }
}
