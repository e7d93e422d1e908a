//! Measures upgrades of a class of 100,000 objects while two threads call them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use refit_objects::{Factory, SwapOptions, UpgradeOptions, destroy, upgrade};

use crate::counter::{Both, CounterInterface, CounterRef};
use crate::stats::Sample;

const OBJECTS: usize = 100_000;
const ROUNDS: usize = 10;

/// The measurements, with one value for each upgrade.
#[derive(Default)]
pub(crate) struct Upgrades {
    /// The whole upgrade, seconds.
    pub(crate) total: Sample,
    /// The longest wait of a call for a switch, in microseconds.
    pub(crate) blocked: Sample,
    /// The longest call, including the time in which its thread did not run, in microseconds.
    pub(crate) longest: Sample,
    /// The longest call in a period of the same length without an upgrade.
    pub(crate) longest_before: Sample,
}

pub(crate) fn measure() -> Upgrades {
    let factory = Factory::<CounterInterface>::new("bench", "plain");
    let counters: Vec<CounterRef> = (0..OBJECTS)
        .map(|_| factory.create("bench", Arc::new(Both), None).expect("it can be plain"))
        .collect();
    let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut upgrades = Upgrades::default();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (counters, stop, longest) = (&counters, &stop, &longest);
            scope.spawn(move || call_all(&counters[thread * OBJECTS / 2..], stop, longest));
        }
        for round in 0..ROUNDS {
            longest.store(0, Ordering::Relaxed);
            let quiet = if round == 0 { 0.5 } else { upgrades.total.median() };
            // As long as an upgrade, which gives the duration of calls on this machine when nothing
            // is changed.
            std::thread::sleep(Duration::from_secs_f64(quiet));
            let before = longest.swap(0, Ordering::Relaxed);
            let to = ["other", "plain"][round % 2];
            let swap = SwapOptions { deadline: Duration::from_secs(10), ..SwapOptions::default() };
            let options = UpgradeOptions { swap, ..UpgradeOptions::default() };
            let began = Instant::now();
            let report = upgrade("counter", to, 1, &options);
            upgrades.total.push(began.elapsed().as_secs_f64());
            assert!(report.committed() && report.objects == OBJECTS as u64, "{report:?}");
            upgrades.blocked.push(report.longest_block_ns as f64 / 1e3);
            upgrades.longest.push(longest.load(Ordering::Relaxed) as f64 / 1e3);
            upgrades.longest_before.push(before as f64 / 1e3);
        }
        stop.store(true, Ordering::Relaxed);
    });
    counters.iter().for_each(|counter| destroy(counter.id()));
    upgrades
}

/// Calls one counter after the other, in an order that jumps about.
fn call_all(counters: &[CounterRef], stop: &AtomicBool, longest: &AtomicU64) {
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        counters[n % counters.len()].next(1);
        longest.fetch_max(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        n += 7_919;
    }
}
