//! What waits until something has changed, and the ring that has it tried again.
//!
//! # Why nothing waits for ever
//!
//! Whoever frees something rings after it; a ring is heard by one thread, which tries all that waits then. What has found nothing free
//! and does not stand among the others yet must not miss that ring: who puts it there compares the number of rings with what it was
//! before the try. If it is another, it is time to ring again. If it is the same, the ring comes after that look, and whoever hears it takes
//! what waits under the lock under which this was put there before: one who had taken the lock earlier, after a ring, would
//! have brought the number of that ring with it.
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

/// What waits.
#[derive(Debug, Default)]
pub struct Waiting<T> {
    all: Mutex<Vec<T>>,
    rung: AtomicBool,
    rings: AtomicU64,
}

impl<T> Waiting<T> {
    /// How often it has been rung: what was freed before that is seen from now on.
    pub fn rings(&self) -> u64 {
        // Pairs with `ring`.
        self.rings.load(Ordering::Acquire)
    }

    /// Puts something there that was tried when it had been rung so often; whether it must be rung again, since it was meanwhile.
    #[must_use]
    pub fn add(&self, one: T, rings: u64) -> bool {
        self.lock().push(one);
        self.rings() != rings
    }

    /// Has what waits tried again; whether nobody knows of it yet: who sleeps is to be woken.
    #[must_use]
    pub fn ring(&self) -> bool {
        // What was freed is seen by who sees this: `rings`, `heard`.
        self.rings.fetch_add(1, Ordering::Release);
        !self.rung.swap(true, Ordering::AcqRel)
    }

    /// Whether it has been rung. Nobody else hears that then.
    pub fn heard(&self) -> bool {
        // Pairs with `ring`. The look before it takes the cache line from nobody.
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// Takes all that waits.
    pub fn take(&self, into: &mut Vec<T>) {
        into.append(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // It is whole at any time.
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

/// Two threads serve; what one of them tries is freed by a third.
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
        /// One round of a server; whether there is nothing left to be heard.
        fn serve(&self, mut tries: Vec<u64>) {
            loop {
                for one in tries.drain(..) {
                    let rings = self.waiting.rings();
                    // Relaxed, as the budget is: who sees the ring sees it.
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
            // It hears a ring, and may do so before what the other tries waits.
            let listens = thread::spawn(move || one.serve(Vec::new()));
            let tries = thread::spawn(move || other.serve(vec![7]));
            world.free.store(1, Ordering::Relaxed);
            let _ = world.waiting.ring();
            listens.join().unwrap();
            tries.join().unwrap();
            // Who sleeps is woken by a ring that nobody has heard yet.
            world.serve(Vec::new());
            assert_eq!(world.done.load(Ordering::Relaxed), 1);
        });
    }
}
