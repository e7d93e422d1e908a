//! Swaps on probation: what does not keep to the condition is swapped back, with its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use refit_objects::change::End;
use refit_objects::{
    Implementations, OwnedRep, Probation, Root, SwapOptions, TransferError, create, destroy,
    interface, object, swap_on_probation,
};

/// Counts, more or less well.
#[interface(name = "worker", state = u64)]
pub trait Worker {
    /// Works; an error now and then.
    fn work(&self) -> Result<u64, i32>;
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

struct Workers;

impl Implementations<WorkerInterface> for Workers {
    fn names(&self) -> Vec<&'static str> {
        vec!["good", "better", "faulty", "slow"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<WorkerInterface>>> {
        let name = self.names().into_iter().find(|n| *n == name)?;
        Some(Box::new(Work { name, done: Arc::default() }))
    }
}

fn probation(until: &str, after: Duration) -> Probation {
    let until = until.parse().expect("it is a condition");
    Probation { before: Duration::from_millis(50), enough: 100, ..Probation::new(after, until) }
}

/// Swaps under load; how it ended, what serves, and whether every call was counted.
fn on_probation(to: &str, probation: &Probation) -> (End, String) {
    let root = Workers.root("good").expect("it is in the list");
    let worker: WorkerRef = create("probation", root, Arc::new(Workers));
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
    let root = Workers.root("good").expect("it is in the list");
    let worker: WorkerRef = create("leaving", root, Arc::new(Workers));
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
