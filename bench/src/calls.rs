//! Measures the cost of a protected call over a plain `dyn` call, and the cost of the peers'
//! protections.
//!
//! Each call needs the result of the previous one, so that no cost can hide behind another call.
//! All contenders run in turn, round after round, in one process; the median of the rounds counts.

use std::hint::black_box;
use std::sync::RwLock;
use std::time::Instant;

use arc_swap::ArcSwap;
use crossbeam_epoch as epoch;

use crate::counter::{Counter, CounterRef, Plain, object};
use crate::stats::Sample;

const CALLS: u64 = 1_000_000;
const ROUNDS: usize = 41;

/// Returns the nanoseconds per call.
///
/// Never inlined: each contender gets a loop of its own, whose code does not depend on how the
/// compiler lays out the function around it. Inlined, the time varied by 0.7 ns with that layout.
#[inline(never)]
pub(crate) fn time(mut call: impl FnMut(u64) -> u64) -> f64 {
    let began = Instant::now();
    let mut n = 0;
    for _ in 0..CALLS {
        n = call(n);
    }
    assert_eq!(black_box(n), CALLS, "every call arrived");
    began.elapsed().as_nanos() as f64 / CALLS as f64
}

/// The contenders and their times.
pub(crate) struct Calls {
    pub(crate) plain: Sample,
    pub(crate) refit: Sample,
    pub(crate) within: Sample,
    pub(crate) arc_swap: Sample,
    pub(crate) rwlock: Sample,
    pub(crate) epoch: Sample,
}

pub(crate) fn measure() -> Calls {
    let plain: Box<dyn Counter> = black_box(Box::new(Plain::default()));
    let refit: CounterRef = black_box(object());
    let swap: ArcSwap<Box<dyn Counter>> = ArcSwap::from_pointee(Box::new(Plain::default()));
    let lock: RwLock<Box<dyn Counter>> = RwLock::new(Box::new(Plain::default()));
    let pinned: epoch::Atomic<Box<dyn Counter>> = epoch::Atomic::new(Box::new(Plain::default()));
    let mut calls = Calls {
        plain: Sample::default(),
        refit: Sample::default(),
        within: Sample::default(),
        arc_swap: Sample::default(),
        rwlock: Sample::default(),
        epoch: Sample::default(),
    };
    for round in 0..=ROUNDS {
        let of_round = [
            time(|n| plain.next(n)),
            time(|n| refit.next(n)),
            refit_objects::request(|| time(|n| refit.next(n))),
            time(|n| swap.load().next(n)),
            time(|n| lock.read().map_or(0, |counter| counter.next(n))),
            time(|n| {
                let guard = epoch::pin();
                let shared = pinned.load(std::sync::atomic::Ordering::Acquire, &guard);
                // SAFETY: the box is never replaced, so the value that was loaded while pinned is
                // alive.
                unsafe { shared.deref() }.next(n)
            }),
        ];
        if round == 0 {
            continue; // warm-up
        }
        let samples = [
            &mut calls.plain,
            &mut calls.refit,
            &mut calls.within,
            &mut calls.arc_swap,
            &mut calls.rwlock,
            &mut calls.epoch,
        ];
        for (sample, time) in samples.into_iter().zip(of_round) {
            sample.push(time);
        }
    }
    refit_objects::destroy(refit.id());
    calls
}
