//! Processors that are kept awake while programs use a mount.
//!
//! A program that waits for one answer after the other, and the worker that answers, wake each
//! other up for every request. Where both of their processors go idle in between, that takes longer
//! than the requests (`refit_sys::cpu_latency`). A thread looks at the number of requests: while
//! they come close together, it requests that processors stay awake.

use parking_lot::{Condvar, Mutex};
use refit_sys::cpu_latency::Awake;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tracing::debug;

/// The interval between two looks while requests come.
const INTERVAL: Duration = Duration::from_millis(20);
/// The longest interval while none come.
const MAX_INTERVAL: Duration = Duration::from_millis(640);
/// The minimum number of requests in an [`INTERVAL`] for which processors stay awake.
const MIN_REQUESTS: u64 = 20;
/// The number of intervals with fewer requests after which processors may sleep.
const MAX_QUIET: u32 = 5;

/// The state of the thread that keeps processors awake.
#[derive(Debug, Default)]
pub(crate) struct Wakefulness {
    closed: Mutex<bool>,
    change: Condvar,
}

/// The decision of whether processors stay awake.
#[derive(Debug)]
struct Policy {
    awake: bool,
    quiet: u32,
    interval: Duration,
}

impl Wakefulness {
    /// Checks that processors can be kept awake.
    pub(crate) fn new() -> io::Result<Self> {
        Awake::hold()?;
        Ok(Self::default())
    }

    /// Keeps processors awake while requests come, until it is closed.
    pub(crate) fn run(&self, requests: &AtomicU64) {
        let mut policy = Policy { awake: false, quiet: 0, interval: INTERVAL };
        let mut held = None;
        let mut last = requests.load(Relaxed);
        let mut closed = self.closed.lock();
        while !*closed {
            self.change.wait_for(&mut closed, policy.interval);
            let now = requests.load(Relaxed);
            policy.look(now - last);
            last = now;
            if policy.awake != held.is_some() {
                // The device could be opened when the mount began.
                held = if policy.awake { Awake::hold().ok() } else { None };
                debug!(awake = held.is_some(), "keeps processors awake");
            }
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.change.notify_all();
    }
}

impl Policy {
    /// Decides by the number of requests in the last interval.
    fn look(&mut self, requests: u64) {
        let intervals = self.interval.div_duration_f64(INTERVAL);
        let busy = requests as f64 >= MIN_REQUESTS as f64 * intervals;
        self.quiet = if busy { 0 } else { self.quiet.saturating_add(1) };
        self.awake = busy || (self.awake && self.quiet < MAX_QUIET);
        let longer = (self.interval * 2).min(MAX_INTERVAL);
        self.interval = if self.awake || requests > 0 { INTERVAL } else { longer };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy { awake: false, quiet: 0, interval: INTERVAL }
    }

    #[test]
    fn processors_stay_awake_while_requests_come_close_together() {
        let mut policy = policy();
        policy.look(MIN_REQUESTS - 1);
        assert!(!policy.awake);
        policy.look(MIN_REQUESTS);
        assert!(policy.awake);
        for _ in 1..MAX_QUIET {
            policy.look(0);
            assert!(policy.awake);
        }
        policy.look(0);
        assert!(!policy.awake);
    }

    #[test]
    fn a_mount_that_nobody_uses_is_looked_at_rarely() {
        let mut policy = policy();
        (0..10).for_each(|_| policy.look(0));
        assert_eq!(policy.interval, MAX_INTERVAL);
        // As many as in a short interval are few in a long one.
        policy.look(MIN_REQUESTS);
        assert_eq!((policy.awake, policy.interval), (false, INTERVAL));
        policy.look(MIN_REQUESTS);
        assert!(policy.awake);
    }
}
