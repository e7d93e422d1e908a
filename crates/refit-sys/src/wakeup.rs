//! Who sleeps until somebody rings, where both are processes that share a word of memory.
//!
//! # Why nobody sleeps through a ring
//!
//! The sleeper says that it sleeps, then looks once more whether there is what it waits for; the ringer says what there is, then looks whether anybody
//! sleeps. Each has a sequentially consistent fence between the two, so at least one of them sees what the other said: either the sleeper does not
//! sleep, or the ringer wakes it. A ringer that comes between that look and the sleep has changed the word, which the kernel compares before it
//! puts anybody to sleep.
//!
//! The model below fails without either fence.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What the word is while somebody sleeps.
pub(crate) const ASLEEP: u32 = 1;

/// Wakes who sleeps, if anybody does; called after what it waits for has been stored.
pub(crate) fn ring(wakeup: &AtomicU64, wake: impl FnOnce(&AtomicU64)) {
    // Partner: the fence in `sleep`.
    fence(Ordering::SeqCst);
    // Relaxed: the fence orders it. Who sees 0 here was seen by the sleeper's look.
    if wakeup.load(Ordering::Relaxed) != 0 {
        // Relaxed: the kernel compares the word with a lock held that `wake` takes too.
        wakeup.store(0, Ordering::Relaxed);
        wake(wakeup);
    }
}

/// Sleeps until it is rung, unless `ready` already; `wait` sleeps while the word is [`ASLEEP`]. May come back for no reason.
pub(crate) fn sleep(
    wakeup: &AtomicU64,
    ready: impl FnOnce() -> bool,
    wait: impl FnOnce(&AtomicU64),
) {
    wakeup.store(u64::from(ASLEEP), Ordering::Relaxed);
    // Partner: the fence in `ring`.
    fence(Ordering::SeqCst);
    if !ready() {
        wait(wakeup);
    }
    wakeup.store(0, Ordering::Relaxed);
}

/// Two threads; the kernel is a lock and those who sleep.
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
