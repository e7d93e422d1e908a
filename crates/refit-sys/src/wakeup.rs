//! Sleeping until another process wakes the sleeper, by means of a word of memory that both share.
//!
//! # Why no wakeup is lost
//!
//! The sleeper announces that it sleeps, then checks once more for what it waits for. The waker
//! stores what the sleeper waits for, then checks whether it sleeps. Each side has a sequentially
//! consistent fence between its two steps, so at least one of them sees the other's store: either
//! the sleeper does not sleep, or the waker wakes it. A waker that comes between the sleeper's
//! check and its sleep has changed the word; the kernel compares the word before it puts a thread
//! to sleep.
//!
//! The model below fails without either fence.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The value of the word while the sleeper sleeps.
pub(crate) const ASLEEP: u32 = 1;

/// Wakes the sleeper, if it sleeps. Called after the store of what it waits for.
pub(crate) fn ring(wakeup: &AtomicU64, wake: impl FnOnce(&AtomicU64)) {
    // Pairs with the fence in `sleep`.
    fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence. If this loads 0, the sleeper's check sees the store.
    if wakeup.load(Ordering::Relaxed) != 0 {
        // Relaxed: the kernel compares the word under a lock that `wake` takes too.
        wakeup.store(0, Ordering::Relaxed);
        wake(wakeup);
    }
}

/// Sleeps until it is rung, unless `ready` returns true. `wait` sleeps while the word is
/// [`ASLEEP`]. May return spuriously.
pub(crate) fn sleep(
    wakeup: &AtomicU64,
    ready: impl FnOnce() -> bool,
    wait: impl FnOnce(&AtomicU64),
) {
    wakeup.store(u64::from(ASLEEP), Ordering::Relaxed);
    // Pairs with the fence in `ring`.
    fence(Ordering::SeqCst);
    if !ready() {
        wait(wakeup);
    }
    wakeup.store(0, Ordering::Relaxed);
}

/// A model of two threads; the kernel is a lock and a condition variable for the sleepers.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    #[derive(Default)]
    struct World {
        index: AtomicU64,
        wakeup: AtomicU64,
        kernel: Mutex<()>,
        asleep: Condvar,
    }

    impl World {
        fn put(&self, index: u64) {
            self.index.store(index, Ordering::Release);
            ring(&self.wakeup, |_| {
                let _kernel = self.kernel.lock().unwrap();
                self.asleep.notify_all();
            });
        }

        fn wait_for(&self, index: u64) {
            while self.index.load(Ordering::Acquire) != index {
                let ready = || self.index.load(Ordering::Acquire) == index;
                sleep(&self.wakeup, ready, |wakeup| {
                    let kernel = self.kernel.lock().unwrap();
                    if wakeup.load(Ordering::Relaxed) == u64::from(ASLEEP) {
                        drop(self.asleep.wait(kernel).unwrap());
                    }
                });
            }
        }
    }

    #[test]
    fn nobody_sleeps_through_a_ring() {
        loom::model(|| {
            let world = Arc::new(World::default());
            let other = Arc::clone(&world);
            let sleeper = thread::spawn(move || other.wait_for(2));
            world.put(1);
            world.put(2);
            sleeper.join().unwrap();
        });
    }
}
