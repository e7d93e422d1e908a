//! Swaps on probation: what does not keep to the condition is swapped back, with its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use refit_objects::change::End;
use refit_objects::{
    Handover, Implementations, OwnedRep, Probation, Root, SwapOptions, TransferError, create,
    destroy, interface, object, swap_on_probation,
};

/// Counts, more or less well.
#[interface(name = "worker", state = u64, empty)]
pub trait Worker {
    /// Works; an error now and then. The number of times before.
    fn work(&self) -> Result<u64, i32>;
    /// Says that it is inside, and stays there until it is let go.
    fn stay(&self, inside: &AtomicBool, go: &AtomicBool);
}

struct Work {
    name: &'static str,
    done: Arc<AtomicU64>,
}

impl Worker for Work {
    fn work(&self) -> Result<u64, i32> {
        let n = self.done.fetch_add(1, Ordering::Relaxed);
        match self.name {
            "faulty" if n.is_multiple_of(10) => Err(5),
            "slow" => {
                let until = std::time::Instant::now() + Duration::from_micros(200);
                while std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
                Ok(n)
            }
            _ => Ok(n),
        }
    }
    fn stay(&self, inside: &AtomicBool, go: &AtomicBool) {
        inside.store(true, Ordering::Release);
        while !go.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

impl Root<WorkerInterface> for Work {
    fn implementation(&self) -> &str {
        self.name
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<WorkerInterface> {
        WorkerInterface::rep(Work { name: self.name, done: Arc::clone(&self.done) })
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.done.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.done.store(state, Ordering::Relaxed);
        Ok(())
    }
}

/// The implementations, and how often a good one was made.
#[derive(Default)]
struct Workers(AtomicU64);

impl Implementations<WorkerInterface> for Workers {
    fn names(&self) -> Vec<&'static str> {
        vec!["good", "better", "faulty", "slow"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<WorkerInterface>>> {
        let name = self.names().into_iter().find(|n| *n == name)?;
        self.0.fetch_add(u64::from(name == "good"), Ordering::Relaxed);
        Some(Box::new(Work { name, done: Arc::default() }))
    }
}

fn probation(until: &str, after: Duration) -> Probation {
    let until = until.parse().expect("it is a condition");
    Probation { before: Duration::from_millis(50), enough: 100, ..Probation::new(after, until) }
}

/// Creates a good worker.
fn worker(name: &str) -> (WorkerRef, Arc<Workers>) {
    let all = Arc::new(Workers::default());
    let root = all.root("good").expect("it is in the list");
    (create(name, root, Arc::clone(&all) as _), all)
}

/// Swaps under load; how it ended, what serves, and whether every call was counted.
fn on_probation(to: &str, probation: &Probation) -> (End, String) {
    let (worker, _) = worker("probation");
    let stop = AtomicBool::new(false);
    let (report, calls) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                let _ = worker.work();
                calls += 1;
            }
            calls
        });
        let options = SwapOptions { deadline: Duration::from_secs(60), ..SwapOptions::default() };
        let report = swap_on_probation(worker.id(), to, 1, &options, probation);
        stop.store(true, Ordering::Relaxed);
        (report, caller.join().expect("no panic"))
    });
    let serves = object(worker.id()).expect("it lives").implementation;
    let counted = match worker.work() {
        Ok(n) => n,
        Err(_) => calls,
    };
    assert_eq!(counted, calls, "what was done on probation is not lost");
    destroy(worker.id());
    (report.end, serves)
}

#[test]
fn what_keeps_to_the_condition_stays() {
    let probation = probation("errors == 0 && calls > 0", Duration::from_millis(100));
    assert_eq!(on_probation("better", &probation), (End::Committed, "better".into()));
}

#[test]
fn what_fails_or_is_slow_is_swapped_back_at_once() {
    let hour = Duration::from_secs(3600);
    let (end, serves) = on_probation("faulty", &probation("errors == 0", hour));
    let End::RolledBack(why) = end else { panic!("{end:?}") };
    assert!(why.starts_with("on probation: errors == 0 does not hold: "), "{why}");
    assert_eq!(serves, "good");
    let (end, serves) = on_probation("slow", &probation("p50 < 1.2 × before", hour));
    assert!(matches!(end, End::RolledBack(_)) && serves == "good");
}

#[test]
fn a_requester_that_goes_away_ends_the_probation_with_a_swap_back() {
    let (worker, _) = worker("leaving");
    let cancel = Arc::new(AtomicBool::new(false));
    let options = SwapOptions {
        deadline: Duration::from_secs(60),
        cancel: Some(Arc::clone(&cancel)),
        ..SwapOptions::default()
    };
    let report = std::thread::scope(|scope| {
        let forever = probation("errors == 0", Duration::from_secs(3600));
        let swap =
            scope.spawn(move || swap_on_probation(worker.id(), "better", 1, &options, &forever));
        while object(worker.id()).expect("it lives").implementation != "better" {
            std::thread::yield_now();
        }
        cancel.store(true, Ordering::Relaxed);
        swap.join().expect("no panic")
    });
    assert!(matches!(&report.end, End::RolledBack(why) if why.contains("went away")), "{report:?}");
    let info = object(worker.id()).expect("it lives");
    assert_eq!(info.implementation, "good");
    assert!(info.wrappers.is_empty(), "nothing is measured any more");
    destroy(worker.id());
}

/// The old state was discarded when the new implementation began; what the new one has done since
/// goes back with the object.
#[test]
fn what_was_done_on_probation_comes_back_although_it_began_with_nothing() {
    let (worker, _) = worker("empty");
    assert_eq!(worker.work(), Ok(0));
    let stop = AtomicBool::new(false);
    let (beginnings, last) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let (mut beginnings, mut before) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let n = worker.work().expect("none of them fails");
                beginnings += u64::from(n == 0);
                assert!(n == 0 || n == before + 1, "{n} after {before}");
                before = n;
            }
            (beginnings, before)
        });
        let options = SwapOptions {
            deadline: Duration::from_secs(60),
            handover: Handover::EmptyState,
            ..SwapOptions::default()
        };
        let never = probation("calls == 0", Duration::from_secs(3600));
        let report = swap_on_probation(worker.id(), "better", 1, &options, &never);
        stop.store(true, Ordering::Relaxed);
        assert!(report.rolled_back(), "{report:?}");
        caller.join().expect("no panic")
    });
    assert_eq!(object(worker.id()).expect("it lives").implementation, "good");
    assert_eq!(worker.work(), Ok(last + 1));
    assert_eq!(beginnings, 1, "the implementation that was on probation, and no other");
    destroy(worker.id());
}

/// A call keeps the first attempt to swap back from ending before its deadline, and leaves when the
/// second one begins.
#[test]
fn the_swap_back_is_tried_again() {
    let (worker, all) = worker("again");
    let [inside, go] = [const { AtomicBool::new(false) }; 2];
    let cancel = Arc::new(AtomicBool::new(false));
    let serves = || object(worker.id()).expect("it lives").implementation;
    let options = SwapOptions {
        deadline: Duration::from_millis(200),
        cancel: Some(Arc::clone(&cancel)),
        ..SwapOptions::default()
    };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while serves() != "better" {
                std::thread::yield_now();
            }
            worker.stay(&inside, &go);
        });
        scope.spawn(|| {
            while !inside.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // The requester goes away, so that the object is swapped back.
            cancel.store(true, Ordering::Relaxed);
            // One was made to begin with, and one for each attempt.
            while all.0.load(Ordering::Relaxed) < 3 {
                std::thread::yield_now();
            }
            go.store(true, Ordering::Release);
        });
        let forever = probation("errors == 0", Duration::from_secs(3600));
        loop {
            // On a slow machine the deadline may pass before the swap has begun.
            let report = swap_on_probation(worker.id(), "better", 1, &options, &forever);
            if !report.late {
                // Before anything can fail: the scope waits for the call.
                go.store(true, Ordering::Release);
                all.0.store(3, Ordering::Relaxed);
                return report;
            }
        }
    });
    let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
    assert!(why.contains("went away") && !why.contains("still serves"), "{why}");
    assert_eq!(serves(), "good");
    destroy(worker.id());
}
