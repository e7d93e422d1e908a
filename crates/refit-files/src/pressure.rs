//! When inodes are released: before descriptors run out.
//!
//! Each inode that the kernel knows needs a descriptor, and the kernel forgets inodes only when it
//! is short of memory itself. When most of the descriptors that this process may have are in use,
//! the kernel is asked to drop names of files that are not open, and then forgets their inodes.
//! This needs a thread of its own: the kernel takes the lock of the directory, whose holder may be
//! waiting for a worker.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// The shares of the descriptor limit at which the release of inodes begins and at which it ends.
const HIGH_WATERMARK: (u64, u64) = (7, 10);
const LOW_WATERMARK: (u64, u64) = (5, 10);
/// The share of the descriptor limit above which every request that takes another descriptor
/// pauses, so that the release keeps up.
const THROTTLE: (u64, u64) = (17, 20);
const THROTTLE_PAUSE: Duration = Duration::from_millis(1);
/// The time that the kernel gets to forget inodes before it is asked for more.
const FORGET_TIMEOUT: Duration = Duration::from_millis(20);

/// The state of the release of inodes.
#[derive(Debug)]
pub(crate) struct Pressure {
    state: Mutex<State>,
    changed: Condvar,
    high: u64,
    low: u64,
    throttle: u64,
}

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    ending: bool,
}

impl Pressure {
    /// Creates the state for a process that may have `limit` descriptors.
    pub(crate) fn new(limit: u64) -> Self {
        let share = |(part, of): (u64, u64)| limit / of * part;
        let (high, low, throttle) = (share(HIGH_WATERMARK), share(LOW_WATERMARK), share(THROTTLE));
        Self { state: Mutex::default(), changed: Condvar::new(), high, low, throttle }
    }

    /// Reports the number of descriptors in use. Starts the release of inodes or pauses if it is
    /// high.
    #[inline]
    pub(crate) fn in_use(&self, descriptors: u64) {
        if descriptors > self.high {
            self.relieve();
            if descriptors > self.throttle {
                // Opens wait for closes here; the kernel sends no notification when a descriptor
                // becomes free.
                std::thread::sleep(THROTTLE_PAUSE);
            }
        }
    }

    /// Starts the release of inodes.
    pub(crate) fn relieve(&self) {
        let mut state = self.state.lock();
        if !state.wanted {
            state.wanted = true;
            self.changed.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().ending = true;
        self.changed.notify_one();
    }

    /// Runs the thread until [`Pressure::close`] is called. `let_go` makes the kernel drop names of
    /// this number of inodes, and returns whether enough descriptors are free or no more can be
    /// released.
    pub(crate) fn run(&self, descriptors: impl Fn() -> u64, let_go: impl Fn(u64) -> bool) {
        let mut state = self.state.lock();
        while !state.ending {
            if state.wanted {
                drop(state);
                let excess = descriptors().saturating_sub(self.low);
                let enough = excess == 0 || let_go(excess);
                state = self.state.lock();
                if enough {
                    state.wanted = false;
                } else if !state.ending {
                    self.changed.wait_for(&mut state, FORGET_TIMEOUT);
                }
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
}
