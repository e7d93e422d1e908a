//! Measures the cost of attaching an empty wrapper, of calling through it, and of detaching it
//! (Soules 2003, §6.2, tab. 1).
//!
//! As in the paper an empty wrapper is attached, called through and detached, 100 000 times. The
//! first call after each attachment also creates the reps that lead through the wrapper; a later
//! call is measured as other calls are, each with the result of the previous one.

use std::hint::black_box;
use std::time::Duration;

use refit_objects::{After, PostCall, Pre, PreCall, Wrapper, attach, attach_typed, detach};
use refit_sys::clock;

use crate::calls::time;
use crate::counter::{CounterInterface, CounterRef, CounterWrapper, object};
use crate::stats::Sample;

const ATTACHMENTS: usize = 100_000;
const ROUNDS: usize = 21;
/// The number of attachments that are made one by one, and the pause between two changes.
const APART: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// A wrapper that does nothing, before and after a call or before it only.
struct Empty {
    post: bool,
}

impl Wrapper for Empty {
    fn name(&self) -> &str {
        "empty"
    }
    fn precall(&self, _call: &PreCall<'_>) -> After {
        if self.post { After::Postcall(0) } else { After::Forward }
    }
    fn postcall(&self, _call: &PostCall<'_>) {}
}

/// A wrapper that does nothing, for counters only.
struct EmptyTyped;

impl CounterWrapper for EmptyTyped {
    fn pre_next(&self, n: &mut u64) -> Pre<u64> {
        black_box(n);
        Pre::Postcall(0)
    }
    fn post_next(&self, _state: u64, result: &mut u64) {
        black_box(result);
    }
}

/// The times of wrapping, in nanoseconds.
pub(crate) struct Interposer {
    /// Attach, first call, detach.
    pub(crate) change: [Sample; 3],
    /// Their means, which include the work that is done later for many at once.
    pub(crate) mean: [f64; 3],
    /// Attach, detach and, for comparison, a bare call, with a pause before each, so that nothing
    /// is in a cache.
    pub(crate) apart: [Sample; 3],
    /// A call without wrappers.
    pub(crate) bare: Sample,
    /// Calls through wrappers, by name.
    pub(crate) calls: Vec<(&'static str, Sample)>,
}

/// Returns the length of a tick in nanoseconds, from a time long enough to be exact.
fn tick() -> f64 {
    clock::nanos(1 << 30) as f64 / f64::from(1 << 30)
}

/// Measures attach, detach and a bare call, each after a pause.
fn changes_apart(counter: CounterRef) -> [Sample; 3] {
    let [mut attached, mut detached, mut called] = std::array::from_fn(|_| Sample::default());
    for _ in 0..APART {
        std::thread::sleep(PAUSE);
        let began = clock::ticks();
        let id = attach(counter.id(), Empty { post: true }).expect("it lives");
        attached.push((clock::ticks() - began) as f64 * tick());
        black_box(counter.next(1));
        std::thread::sleep(PAUSE);
        let began = clock::ticks();
        detach(counter.id(), id).expect("it is attached");
        detached.push((clock::ticks() - began) as f64 * tick());
        black_box(counter.next(1));
        std::thread::sleep(PAUSE);
        let began = clock::ticks();
        black_box(counter.next(1));
        called.push((clock::ticks() - began) as f64 * tick());
    }
    [attached, detached, called]
}

fn changes(counter: CounterRef) -> ([Sample; 3], [f64; 3]) {
    let mut samples = [Sample::default(), Sample::default(), Sample::default()];
    let mut sums = [0.0; 3];
    let tick = tick();
    for _ in 0..ATTACHMENTS {
        let began = clock::ticks();
        let id = attach(counter.id(), Empty { post: true }).expect("it lives");
        let attached = clock::ticks();
        black_box(counter.next(1));
        let called = clock::ticks();
        detach(counter.id(), id).expect("it is attached");
        let detached = clock::ticks();
        let times = [attached - began, called - attached, detached - called];
        for ((sample, sum), ticks) in samples.iter_mut().zip(&mut sums).zip(times) {
            let ns = ticks as f64 * tick;
            sample.push(ns);
            *sum += ns / ATTACHMENTS as f64;
        }
    }
    (samples, sums)
}

pub(crate) fn measure() -> Interposer {
    let counter: CounterRef = black_box(object());
    clock::prepare();
    let named = |name: &str| {
        refit_objects::wrap_named(counter.id(), name, &[], 0, "bench");
    };
    let mut bare = Sample::default();
    let mut calls: Vec<(&'static str, Sample)> = Vec::new();
    for round in 0..=ROUNDS {
        let mut of_round = vec![("", time(|n| counter.next(n)))];
        let both = attach(counter.id(), Empty { post: true }).expect("it lives");
        of_round.push(("empty, precall and postcall", time(|n| counter.next(n))));
        let two = attach(counter.id(), Empty { post: true }).expect("it lives");
        of_round.push(("two of these", time(|n| counter.next(n))));
        for id in [both, two] {
            detach(counter.id(), id).expect("it is attached");
        }
        let id = attach(counter.id(), Empty { post: false }).expect("it lives");
        of_round.push(("empty, precall only", time(|n| counter.next(n))));
        detach(counter.id(), id).expect("it is attached");
        let typed = CounterInterface::wrapper("empty", EmptyTyped);
        let id = attach_typed(counter, typed).expect("it lives");
        of_round.push(("empty, typed, before and after", time(|n| counter.next(n))));
        detach(counter.id(), id).expect("it is attached");
        for name in ["count", "latency", "concurrency"] {
            named(name);
            of_round.push((name, time(|n| counter.next(n))));
            refit_objects::unwrap_named(counter.id(), &refit_objects::Which::All, 0, "bench");
        }
        if round == 0 {
            calls = of_round[1..].iter().map(|(name, _)| (*name, Sample::default())).collect();
            continue; // warm-up
        }
        bare.push(of_round[0].1);
        calls.iter_mut().zip(&of_round[1..]).for_each(|((_, sample), (_, ns))| sample.push(*ns));
    }
    let (change, mean) = changes(counter);
    let apart = changes_apart(counter);
    refit_objects::destroy(counter.id());
    Interposer { change, mean, apart, bare, calls }
}
