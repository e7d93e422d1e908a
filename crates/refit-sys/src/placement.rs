//! Placement: workers follow the programs that they serve from processor to processor.
//!
//! # Why
//!
//! A round trip through `/dev/fuse` is two wake-ups. On one processor each is a switch of a few
//! microseconds; across processors each wakes an idle one, which on a virtual machine costs tens of
//! microseconds, several times the work of a request. The scheduler wakes both threads where they
//! ran last. So a program that is bound to a processor, or that stays on it because the others are
//! busy, is served from wherever the worker happens to be, fast or slow by chance.
//!
//! # How
//!
//! From time to time, before it answers, a worker looks up the processor on which the requesting
//! thread waits (`/proc/TID/stat`). When two lookups in a row name the same other processor, the
//! worker moves there: it narrows its affinity to that processor, whereupon the kernel moves it,
//! and widens it again, so that the scheduler can move it when the processor is wanted for
//! something else.
//!
//! # When it does not help
//!
//! A program that wakes on an idle processor while the worker is on its own is moved there by the
//! scheduler, and following it makes it move again. So each move doubles the time to the next
//! lookup, and each lookup that finds worker and program together halves it.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;

use crate::processor;

/// Minimum and maximum number of requests between two lookups.
const PERIODS: std::ops::RangeInclusive<u32> = 16..=4096;
/// Consecutive lookups that must agree before the worker moves.
const AGREE: u32 = 2;

thread_local! {
    static FOLLOWER: RefCell<Follower> = const {
        RefCell::new(Follower { countdown: 16, period: 16, wanted: 0, agreed: 0 })
    };
}

/// A worker's record of where its programs run.
struct Follower {
    /// Requests until the next lookup.
    countdown: u32,
    /// The current number of requests between lookups.
    period: u32,
    /// The processor that the last lookup named.
    wanted: usize,
    /// Consecutive lookups that named it.
    agreed: u32,
}

/// Moves the calling worker towards thread `tid` if lookups agree on it. A worker calls this when
/// it has carried out a request of that thread and has not answered yet, so that the thread still
/// waits. `tid` is 0 if the thread cannot be seen from here.
pub fn follow(tid: u32) {
    FOLLOWER.with_borrow_mut(|follower| {
        follower.countdown -= 1;
        if follower.countdown == 0 {
            follower.look(tid);
            follower.countdown = follower.period;
        }
    });
}

impl Follower {
    fn look(&mut self, tid: u32) {
        let Some(there) = processor_of(tid) else { return };
        if there == processor::current() {
            self.agreed = 0;
            self.period = (self.period / 2).max(*PERIODS.start());
            return;
        }
        self.agreed = if there == self.wanted { self.agreed + 1 } else { 1 };
        self.wanted = there;
        if self.agreed >= AGREE {
            self.agreed = 0;
            self.period = (self.period * 2).min(*PERIODS.end());
            processor::move_to(there);
        }
    }
}

/// Returns the processor on which a thread runs or ran last: field 39 of its `stat`.
pub fn processor_of(tid: u32) -> Option<usize> {
    let mut text = [0; 1024];
    let n = File::open(format!("/proc/{tid}/stat")).ok()?.read(&mut text).ok()?;
    // The name is in parentheses and can contain anything; the third field follows the last
    // parenthesis.
    let end_of_name = text[..n].iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&text[end_of_name + 1..n]).ok()?;
    fields.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_found_where_it_runs_and_can_be_followed() {
        let own = crate::thread::id();
        for there in 0..processor::count() {
            if processor::move_to(there) {
                assert!(processor_of(own).is_some_and(|p| p < processor::count()));
            }
        }
        assert_eq!(processor_of(0), None);
    }

    #[test]
    fn each_move_makes_looks_rarer_and_each_meeting_more_frequent() {
        let mut follower = Follower { countdown: 1, period: 64, wanted: 0, agreed: 0 };
        // A thread is always where it runs, unless it is moved between the two lookups of `look`.
        let own = crate::thread::id();
        assert!((0..1000).any(|_| {
            follower.look(own);
            follower.period < 64
        }));
    }
}
