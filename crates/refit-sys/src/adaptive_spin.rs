//! Workers look out for the next request for a moment before they sleep: of a file, of a page.
//!
//! # Why
//!
//! A program that waits for one answer after the other sends its next request some microseconds after the answer. A
//! worker that slept meanwhile has to be woken, mostly on another processor, which has gone idle with it: on a virtual
//! machine that takes tens of microseconds, several times the work of a request.
//!
//! # How
//!
//! After an answer the worker looks for the next request for as long as a wake-up costs, 50 µs; so it never wastes more time
//! than it could have saved. Before each look it yields its processor: a program that shares the processor with it
//! runs, and makes the very request that is waited for. At most two workers of a device linger at a time.
//!
//! # When it does not help
//!
//! A program that computes for long between requests is not worth waiting for, and neither is one on a processor that
//! others want too: a yield that lasts longer than the moment counts as in vain, whatever has come in meanwhile. Each
//! look-out in vain doubles the number of requests until the next, and one that pays makes the next follow at once, as does a sleep that
//! was no longer.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a worker looks out: what a wake-up across processors costs.
pub const MOMENT: Duration = Duration::from_micros(50);
/// Within that something follows that somebody has announced.
pub const SOON: Duration = Duration::from_micros(150);
/// Workers of a device that look out at a time; the others sleep and cost nothing.
const MOST: u32 = 2;
/// Requests between two look-outs, at most.
const RAREST: u32 = 1024;

thread_local! {
    static PATIENCE: RefCell<Patience> = const { RefCell::new(Patience { period: 1, skip: 0, once: None }) };
}

/// Where requests come in, and how many workers look out there.
#[derive(Debug, Default)]
pub struct AdaptiveSpin {
    /// Set when it is there. Any descriptor of the connection tells of requests for all of them.
    device: OnceLock<OwnedFd>,
    workers: AtomicU32,
}

impl AdaptiveSpin {
    /// Requests come in at `device`; what is set first, stays.
    pub fn at(&self, device: OwnedFd) {
        let _ = self.device.set(device);
    }

    /// Called by a worker that has answered: returns when a request may have come, or after a moment.
    pub fn wait(&self) {
        if let Some(device) = self.device.get() {
            self.wait_for(|| tells(device));
        }
    }

    /// As [`wait`](Self::wait), where `look` looks, and may take what has come; whether something has.
    pub fn wait_for(&self, look: impl FnMut() -> bool) -> bool {
        PATIENCE.with_borrow_mut(|patience| {
            let mut come = false;
            if patience.none_follows() {
                return come;
            }
            if patience.due() {
                if self.workers.fetch_add(1, Relaxed) < MOST {
                    let limit = patience.once.take().unwrap_or(MOMENT);
                    let (news, paid) = look_out(look, limit);
                    patience.learn(paid);
                    come = news;
                }
                self.workers.fetch_sub(1, Relaxed);
            }
            come
        })
    }
}

/// Called by a worker that has slept since then: if it was no longer than a moment, the next look-out follows at once.
pub fn woken(asleep_since: Instant) {
    if asleep_since.elapsed() <= MOMENT {
        PATIENCE.with_borrow_mut(|patience| patience.learn(true));
    }
}

/// Another request follows the one that this thread is about to have answered: it looks out for that.
pub fn one_follows() {
    PATIENCE.with_borrow_mut(|patience| {
        patience.learn(true);
        patience.once = Some(SOON);
    });
}

/// None follows soon the one that this thread is about to have answered: others need its processor meanwhile, and it does not look out.
pub fn none_follows() {
    PATIENCE.with_borrow_mut(|patience| patience.once = Some(Duration::ZERO));
}

/// Looks for a moment whether something has come; whether it has. For who knows from elsewhere whether that is of use.
pub fn a_moment(look: impl FnMut() -> bool) -> bool {
    for_up_to(MOMENT, look)
}

/// As [`a_moment`], for so long.
pub fn for_up_to(limit: Duration, look: impl FnMut() -> bool) -> bool {
    look_out(look, limit).0
}

/// Whether there is a request, or the end of the connection.
fn tells(device: &OwnedFd) -> bool {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&AT_ONCE)) != Ok(0)
}

/// Whether something came, and whether it was worth waiting for.
fn look_out(mut look: impl FnMut() -> bool, limit: Duration) -> (bool, bool) {
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

/// What a worker has learnt about waiting.
struct Patience {
    /// Requests from one look-out to the next.
    period: u32,
    /// Requests until the next look-out.
    skip: u32,
    /// How long that lasts, if it is known to be worth it; not at all, if it is known not to be.
    once: Option<Duration>,
}

impl Patience {
    /// Whether to look out after this request.
    fn due(&mut self) -> bool {
        let due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        due
    }

    /// Whether it is known that none follows; that says nothing of others.
    fn none_follows(&mut self) -> bool {
        self.once.take_if(|once| once.is_zero()).is_some()
    }

    fn learn(&mut self, paid: bool) {
        self.period = if paid { 1 } else { (self.period * 2).min(RAREST) };
        self.skip = self.period - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests_until_due(patience: &mut Patience) -> u32 {
        (1..).find(|_| patience.due()).unwrap()
    }

    #[test]
    fn what_is_in_vain_becomes_rare_and_what_pays_frequent() {
        let mut patience = Patience { period: 1, skip: 0, once: None };
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(requests_until_due(&mut patience), expected);
            patience.learn(false);
        }
        patience.learn(true);
        assert_eq!(requests_until_due(&mut patience), 1);
        patience.learn(false);
        assert_eq!(requests_until_due(&mut patience), 2);
    }

    #[test]
    fn whoever_knows_that_none_follows_does_not_look_out_once() {
        let linger = AdaptiveSpin::default();
        let looks = || {
            let mut looks = 0;
            linger.wait_for(|| {
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
        let linger = AdaptiveSpin::default();
        linger.wait(); // no mount yet
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        linger.at(reader);
        linger.wait();
        drop(writer);
        // The connection has ended, which the first look tells. Whether that was in time a host with more to do than processors decides.
        let mut looks = 0;
        let look = || {
            looks += 1;
            tells(linger.device.get().unwrap())
        };
        let (news, _) = look_out(look, MOMENT);
        assert_eq!((news, looks), (true, 1));
        assert_eq!(linger.workers.load(Relaxed), 0);
    }
}
