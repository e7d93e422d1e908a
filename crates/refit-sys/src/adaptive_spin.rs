//! Adaptive spinning: a worker polls for its next request for a moment before it sleeps.
//!
//! # Why
//!
//! A program that waits for one answer after the other sends its next request some microseconds
//! after each answer. If the worker has gone to sleep by then, the request has to wake it, usually
//! on another processor that has gone idle in the meantime. On a virtual machine such a wake-up
//! takes tens of microseconds, several times the work of a request.
//!
//! # How
//!
//! After an answer, the worker polls for the next request for as long as a wake-up costs, 50 µs, so
//! it never wastes more time than it could have saved. Before each poll it yields its processor: a
//! program that shares the processor runs then, and makes the very request that the worker polls
//! for. At most two workers of a device spin at a time.
//!
//! # When it does not help
//!
//! Spinning does not pay for a program that computes for long between requests, nor on a processor
//! that other threads want: a yield that outlasts the spin time counts as a failure, even if a
//! request has arrived in the meantime. Each failed spin doubles the number of requests until the
//! next spin. A successful spin makes the worker spin after every request again, and so does a
//! sleep that was no longer than the spin time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The spin time: the cost of a wake-up across processors.
pub const MOMENT: Duration = Duration::from_micros(50);
/// The spin time after [`one_follows`], within which the announced request arrives.
pub const SOON: Duration = Duration::from_micros(150);
/// The number of workers of a device that spin at a time; the others sleep and cost nothing.
const MAX_SPINNERS: u32 = 2;
/// The maximum number of requests from one spin to the next.
const MAX_PERIOD: u32 = 1024;

thread_local! {
    static POLICY: RefCell<SpinPolicy> = const { RefCell::new(SpinPolicy { period: 1, skip: 0, once: None }) };
}

/// The device at which requests arrive, and the number of workers that spin for it.
#[derive(Debug, Default)]
pub struct AdaptiveSpin {
    /// Unset until the device is open. Any descriptor of the connection polls readable for requests
    /// of all of them.
    device: OnceLock<OwnedFd>,
    workers: AtomicU32,
}

impl AdaptiveSpin {
    /// Sets the device at which requests arrive. The first call wins; later ones have no effect.
    pub fn at(&self, device: OwnedFd) {
        let _ = self.device.set(device);
    }

    /// Polls the device until a request may have arrived, but no longer than the spin time. A
    /// worker calls this after it has answered a request.
    pub fn wait(&self) {
        if let Some(device) = self.device.get() {
            self.wait_for(|| is_readable(device));
        }
    }

    /// As [`wait`](Self::wait), with `look` as the poll; `look` may consume the request that it
    /// finds. Returns whether `look` has found a request.
    pub fn wait_for(&self, look: impl FnMut() -> bool) -> bool {
        POLICY.with_borrow_mut(|policy| {
            let mut come = false;
            if policy.none_follows() {
                return come;
            }
            if policy.due() {
                if self.workers.fetch_add(1, Relaxed) < MAX_SPINNERS {
                    let limit = policy.once.take().unwrap_or(MOMENT);
                    let (news, paid) = spin(look, limit);
                    policy.learn(paid);
                    come = news;
                }
                self.workers.fetch_sub(1, Relaxed);
            }
            come
        })
    }
}

/// Reports how long the calling worker has slept. If that was no longer than the spin time, the
/// worker spins after its next request.
pub fn woken(asleep_since: Instant) {
    if asleep_since.elapsed() <= MOMENT {
        POLICY.with_borrow_mut(|policy| policy.learn(true));
    }
}

/// Announces that another request follows soon after the answer that the calling thread is about to
/// give. After that answer the thread spins for the announced request, for up to [`SOON`].
pub fn one_follows() {
    POLICY.with_borrow_mut(|policy| {
        policy.learn(true);
        policy.once = Some(SOON);
    });
}

/// Announces that no request follows soon after the answer that the calling thread is about to
/// give. The thread does not spin after that answer, since other threads need its processor.
pub fn none_follows() {
    POLICY.with_borrow_mut(|policy| policy.once = Some(Duration::ZERO));
}

/// Polls with `look` for up to [`MOMENT`] and returns whether it has found something. For callers
/// that know by themselves whether spinning pays.
pub fn a_moment(look: impl FnMut() -> bool) -> bool {
    for_up_to(MOMENT, look)
}

/// As [`a_moment`], for up to `limit`.
pub fn for_up_to(limit: Duration, look: impl FnMut() -> bool) -> bool {
    spin(look, limit).0
}

/// Returns whether the device has a request, or its connection has ended.
fn is_readable(device: &OwnedFd) -> bool {
    const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&NO_WAIT)) != Ok(0)
}

/// Polls with `look` for up to `limit`. Returns whether it has found something, and whether that
/// was within the limit.
fn spin(mut look: impl FnMut() -> bool, limit: Duration) -> (bool, bool) {
    let began = Instant::now();
    loop {
        std::thread::yield_now();
        let news = look();
        let in_time = began.elapsed() <= limit;
        if news || !in_time {
            return (news, news && in_time);
        }
    }
}

/// A worker's record of how well spinning has paid.
struct SpinPolicy {
    /// Requests from one spin to the next.
    period: u32,
    /// Requests until the next spin.
    skip: u32,
    /// The length of the next spin, if that was announced; zero skips it.
    once: Option<Duration>,
}

impl SpinPolicy {
    /// Returns whether the worker spins after this request.
    fn due(&mut self) -> bool {
        let due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        due
    }

    /// Returns whether [`none_follows`] was called for this request, and clears that mark. The mark
    /// says nothing of later requests.
    fn none_follows(&mut self) -> bool {
        self.once.take_if(|once| once.is_zero()).is_some()
    }

    fn learn(&mut self, paid: bool) {
        self.period = if paid { 1 } else { (self.period * 2).min(MAX_PERIOD) };
        self.skip = self.period - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests_until_due(policy: &mut SpinPolicy) -> u32 {
        (1..).find(|_| policy.due()).unwrap()
    }

    #[test]
    fn what_is_in_vain_becomes_rare_and_what_pays_frequent() {
        let mut policy = SpinPolicy { period: 1, skip: 0, once: None };
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(requests_until_due(&mut policy), expected);
            policy.learn(false);
        }
        policy.learn(true);
        assert_eq!(requests_until_due(&mut policy), 1);
        policy.learn(false);
        assert_eq!(requests_until_due(&mut policy), 2);
    }

    #[test]
    fn whoever_knows_that_none_follows_does_not_look_out_once() {
        let spin_point = AdaptiveSpin::default();
        let looks = || {
            let mut looks = 0;
            spin_point.wait_for(|| {
                looks += 1;
                true
            });
            looks
        };
        none_follows();
        assert_eq!((looks(), looks()), (0, 1));
    }

    #[test]
    fn nobody_waits_for_a_request_that_does_not_come_nor_longer_than_needed() {
        let spin_point = AdaptiveSpin::default();
        spin_point.wait(); // no mount yet
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        spin_point.at(reader);
        spin_point.wait();
        drop(writer);
        // The connection has ended, which the first poll finds. Whether it was in time depends on
        // the load of the host.
        let mut looks = 0;
        let look = || {
            looks += 1;
            is_readable(spin_point.device.get().unwrap())
        };
        let (news, _) = spin(look, MOMENT);
        assert_eq!((news, looks), (true, 1));
        assert_eq!(spin_point.workers.load(Relaxed), 0);
    }
}
