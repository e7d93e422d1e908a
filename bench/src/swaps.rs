//! Measures a null swap, idle and under two busy threads (Soules 2003, §6.2, fig. 4).
//!
//! A null swap replaces an implementation by a new instance of the same. It must wait for the calls
//! in flight, and on a machine with as many busy threads as processors a call in flight can be
//! preempted by the swapper itself. Each busy thread therefore notes its longest call during a
//! swap, and the time beyond that call is the time of the swap itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use refit_objects::{ObjectId, SwapOptions, swap_named};

use crate::stats::Sample;

/// The times of many swaps, in microseconds.
#[derive(Default)]
pub(crate) struct Swaps {
    /// The time from the request to the report.
    pub(crate) total: Sample,
    /// The time beyond the longest call that was in flight.
    pub(crate) beyond: Sample,
}

/// Returns the microseconds from the request to the commit.
fn swap(id: ObjectId, to: &str) -> f64 {
    // The deadline of `refit swap`.
    let deadline = Duration::from_secs(10);
    let options = SwapOptions { deadline, urgent: true, ..SwapOptions::default() };
    let report = swap_named(id, to, 1, &options);
    assert!(report.committed(), "{report:?}");
    report.total_ns() as f64 / 1000.0
}

/// Swaps an object that is not called.
pub(crate) fn idle(id: ObjectId, to: &str, times: usize) -> Swaps {
    let mut swaps = Swaps::default();
    for _ in 0..times {
        let us = swap(id, to);
        swaps.total.push(us);
        swaps.beyond.push(us);
    }
    swaps
}

/// The state that a busy thread shows to the swapper.
#[derive(Default)]
struct Busy {
    /// The start of the current call in nanoseconds; 0 between calls.
    began: AtomicU64,
    /// The longest call that ended since the swapper last asked, in nanoseconds.
    longest: AtomicU64,
}

/// Swaps an object while two threads call it without pause.
pub(crate) fn busy(id: ObjectId, to: &str, times: usize, call: &(dyn Fn(usize) + Sync)) -> Swaps {
    let stop = AtomicBool::new(false);
    let clock = Instant::now();
    let now = || clock.elapsed().as_nanos() as u64;
    let busy = [Busy::default(), Busy::default()];
    let mut swaps = Swaps::default();
    std::thread::scope(|scope| {
        for (thread, own) in busy.iter().enumerate() {
            let (stop, now) = (&stop, &now);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let began = now();
                    own.began.store(began, Ordering::Relaxed);
                    call(thread);
                    own.longest.fetch_max(now() - began, Ordering::Relaxed);
                    own.began.store(0, Ordering::Relaxed);
                }
            });
        }
        for n in 0..times {
            for own in &busy {
                own.longest.store(0, Ordering::Relaxed);
            }
            let began = now();
            let us = swap(id, to);
            let in_flight = busy.iter().map(|own| {
                let open = own.began.load(Ordering::Relaxed);
                let open = if open == 0 { 0 } else { now().saturating_sub(open) };
                own.longest.load(Ordering::Relaxed).max(open).min(now() - began)
            });
            let longest = in_flight.max().unwrap_or(0) as f64 / 1000.0;
            if n >= times / 100 {
                swaps.total.push(us);
                swaps.beyond.push((us - longest).max(0.0));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    swaps
}
