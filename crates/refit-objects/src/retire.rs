//! Retiring: frees objects that are no longer reachable once no request can use them any more.
//!
//! Retired objects wait in a [`Limbo`](crate::limbo::Limbo). The next thread that retires or swaps
//! an object frees those whose generation has passed. In case there is no such thread, the *reaper*
//! frees them too: it checks every [`BUSY_INTERVAL`] while objects wait, every [`IDLE_INTERVAL`]
//! for a while after that, and then sleeps until it is woken. So a thread that defers several
//! objects within a few seconds pays for at most one wake-up.

use std::time::Duration;

use crate::generation::Generations;
use crate::limbo::Garbage;
use crate::reaper::Reaper;

/// The generations of this process.
pub(crate) static GENERATIONS: Generations = Generations::new();

static REAPER: Reaper = Reaper::new();

/// The interval between two looks of the reaper while there is something to do.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// The interval between two looks when there was nothing to do lately.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);

/// The number of looks with nothing to do before the reaper slows down, and before it sleeps until
/// it is woken.
const IDLE_LOOKS: [u32; 2] = [10, 30];

/// Frees `garbage` when all current requests have ended.
pub(crate) fn retire(garbage: Garbage) {
    REAPER.retire(&GENERATIONS, garbage, begin_reaper);
}

/// Frees `garbage` some time after all current requests have ended, without a barrier now. It must
/// be unreachable already. Must be called outside of locks, since it may free other objects.
pub(crate) fn defer(garbage: Garbage) {
    REAPER.defer(&GENERATIONS, garbage, begin_reaper);
}

/// Begins a generation, which includes everything that was deferred, and returns its number. See
/// [`Generations::advance`].
pub(crate) fn advance() -> u64 {
    REAPER.limbo.take_along(&GENERATIONS)
}

/// Frees the objects whose generation has passed.
pub(crate) fn collect() {
    REAPER.limbo.collect(&GENERATIONS);
}

/// Frees everything that can be freed now. Returns the number of objects that still wait.
pub fn settle() -> usize {
    REAPER.limbo.advance(&GENERATIONS);
    collect();
    REAPER.limbo.len()
}

/// Starts the reaper's thread. Returns whether that was possible.
fn begin_reaper() -> bool {
    let named = std::thread::Builder::new().name("refit-reaper".into());
    named.spawn(reap).is_ok()
}

/// The reaper's thread.
fn reap() {
    let mut idle = 0;
    loop {
        if idle == IDLE_LOOKS[1] {
            REAPER.sleep();
            idle = 0;
        }
        // Polled, since a wake-up for each piece of garbage would cost its owner a system call.
        std::thread::sleep(if idle < IDLE_LOOKS[0] { BUSY_INTERVAL } else { IDLE_INTERVAL });
        idle = if REAPER.limbo.is_empty() { idle + 1 } else { 0 };
        settle();
    }
}
