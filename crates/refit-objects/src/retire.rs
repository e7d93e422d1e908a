//! Retiring: frees objects that are no longer reachable once no request can use them any more.
//!
//! They wait in a [`Limbo`]. The next thread that retires or swaps frees the objects that are due.
//! So that this does not depend on such a thread, the *reaper* frees them too: it checks every
//! [`BUSY_INTERVAL`] while there are any, every [`IDLE_INTERVAL`] for a while after that, and then
//! sleeps until it is woken. Waking it is a system call, which would cost more than a deferral, so
//! a thread that defers several objects within a few seconds pays for at most one wake-up.

use std::time::Duration;

use crate::generation::Generations;
use crate::limbo::{Garbage, Limbo};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The generations of this process.
pub(crate) static GENERATIONS: Generations = Generations::new();

static LIMBO: Limbo = Limbo::new();

/// The interval between two looks of the reaper while there is something to do.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// The interval between two looks when there was nothing to do lately.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);

/// The number of looks with nothing to do before the reaper slows down, and before it sleeps until
/// it is woken.
const IDLE_LOOKS: [u32; 2] = [10, 30];

/// The maximum number of deferred objects that share a barrier.
const MAX_DEFERRED: usize = 256;

/// Frees `garbage` when all current requests have ended.
pub(crate) fn retire(garbage: Garbage) {
    LIMBO.retire(&GENERATIONS, garbage);
    collect();
    if !LIMBO.is_empty() {
        REAPER.wake();
    }
}

/// Frees `garbage` some time after all current requests have ended, without a barrier now. It must
/// be unreachable already. Must be called outside of locks, since it may free other objects.
pub(crate) fn defer(garbage: Garbage) {
    if LIMBO.defer(garbage) >= MAX_DEFERRED || !REAPER.wake() {
        LIMBO.advance(&GENERATIONS);
        collect();
    }
}

/// Begins a generation, which includes everything that was deferred, and returns its number. See
/// [`Generations::advance`].
pub(crate) fn advance() -> u64 {
    LIMBO.take_along(&GENERATIONS)
}

/// Frees what is due.
pub(crate) fn collect() {
    LIMBO.collect(&GENERATIONS);
}

/// Frees everything that can be freed now. Returns the number of objects that still wait.
pub fn settle() -> usize {
    LIMBO.advance(&GENERATIONS);
    collect();
    LIMBO.len()
}

static REAPER: Reaper = Reaper {
    state: Mutex::new(ReaperState { awake: false, thread: Thread::None }),
    wanted: Condvar::new(),
};

/// The thread that frees what no other thread does.
struct Reaper {
    state: Mutex<ReaperState>,
    wanted: Condvar,
}

struct ReaperState {
    /// Whether it looks again within [`IDLE_INTERVAL`].
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
    fn lock(&self) -> MutexGuard<'_, ReaperState> {
        self.state.lock()
    }

    /// Makes the reaper look soon. Returns false if there is none.
    fn wake(&'static self) -> bool {
        let mut state = self.lock();
        if state.awake {
            return true;
        }
        if matches!(state.thread, Thread::None) {
            let named = std::thread::Builder::new().name("refit-reaper".into());
            let begun = named.spawn(|| self.work());
            state.thread = if begun.is_ok() { Thread::Lives } else { Thread::Refused };
        }
        state.awake = matches!(state.thread, Thread::Lives);
        if state.awake {
            self.wanted.notify_one();
        }
        state.awake
    }

    fn work(&self) {
        let mut idle = 0;
        loop {
            if idle == IDLE_LOOKS[1] {
                let mut state = self.lock();
                // A thread that defers from here on finds it asleep; everything deferred before is
                // seen here.
                state.awake = !LIMBO.is_empty();
                while !state.awake {
                    self.wanted.wait(&mut state);
                }
                idle = 0;
            }
            std::thread::sleep(if idle < IDLE_LOOKS[0] { BUSY_INTERVAL } else { IDLE_INTERVAL });
            idle = if LIMBO.is_empty() { idle + 1 } else { 0 };
            settle();
        }
    }
}
