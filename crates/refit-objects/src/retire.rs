//! What nobody can find any more is freed when nobody can use it any more.
//!
//! Things wait in a [`Limbo`]. Whoever retires or swaps next takes out what is due, and a thread, the *reaper*, sees to
//! it that this does not depend on anybody: it looks every [`SOON`] while something is there, every [`LATER`] for a
//! while after that, and then sleeps until it is woken. To wake it is a system call, which would cost more than what is
//! deferred; so whoever defers several things in a few seconds pays for one wake-up at most.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::generation::Generations;
use crate::limbo::{Garbage, Limbo};

/// The generations of this process.
pub(crate) static GENERATIONS: Generations = Generations::new();

static LIMBO: Limbo = Limbo::new();

/// Between two looks of the reaper while there is something to do.
const SOON: Duration = Duration::from_millis(10);

/// Between two looks when there was nothing to do lately.
const LATER: Duration = Duration::from_millis(250);

/// Looks without anything to do before the reaper takes its time, and before it sleeps until it is woken.
const IDLE_LOOKS: [u32; 2] = [10, 30];

/// As many deferred things share a barrier at most.
const DEFERRED_AT_MOST: usize = 256;

/// Frees `garbage` when all requests of now have ended.
pub(crate) fn retire(garbage: Garbage) {
    LIMBO.retire(&GENERATIONS, garbage);
    collect();
    if !LIMBO.is_empty() {
        REAPER.wake();
    }
}

/// Frees `garbage` some time after all requests of now have ended, and costs no barrier now. It must not be findable
/// any more. Call it outside of locks: it may free other things.
pub(crate) fn defer(garbage: Garbage) {
    if LIMBO.defer(garbage) >= DEFERRED_AT_MOST || !REAPER.wake() {
        LIMBO.advance(&GENERATIONS);
        collect();
    }
}

/// Begins a generation, which takes along what was deferred; its number. See [`Generations::advance`].
pub(crate) fn advance() -> u64 {
    LIMBO.take_along(&GENERATIONS)
}

/// Frees what is due.
pub(crate) fn collect() {
    LIMBO.collect(&GENERATIONS);
}

/// Frees everything that can be freed now, and tells how many things still wait.
pub fn settle() -> usize {
    LIMBO.advance(&GENERATIONS);
    collect();
    LIMBO.len()
}

static REAPER: Reaper = Reaper {
    state: Mutex::new(ReaperState { awake: false, thread: Thread::None }),
    wanted: Condvar::new(),
};

/// The thread that frees what nobody else does.
struct Reaper {
    state: Mutex<ReaperState>,
    wanted: Condvar,
}

struct ReaperState {
    /// It looks again within [`LATER`].
    awake: bool,
    thread: Thread,
}

/// What became of it.
enum Thread {
    /// Nobody has needed it yet.
    None,
    Lives,
    /// It cannot be had: the process may not have more threads.
    Refused,
}

impl Reaper {
    fn lock(&self) -> std::sync::MutexGuard<'_, ReaperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that the reaper looks soon; false if there is none.
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
                // Whoever defers from here on finds it asleep; whoever did before is seen here.
                state.awake = !LIMBO.is_empty();
                while !state.awake {
                    state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                idle = 0;
            }
            std::thread::sleep(if idle < IDLE_LOOKS[0] { SOON } else { LATER });
            idle = if LIMBO.is_empty() { idle + 1 } else { 0 };
            settle();
        }
    }
}
