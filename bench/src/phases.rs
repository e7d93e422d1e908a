//! The counter experiment (Hui 2000, §5.3.2, figs. 5.3–5.5): a counter for updates, one for reads,
//! and a switch between them.
//!
//! Threads pass a barrier and work through a phase of a fixed number of updates or of reads. The
//! shared counter is one atomic number; the partitioned one has a number with a lock for each
//! processor, and a read locks and sums them all. The two-phase test updates and then reads;
//! *switched*, the counter begins partitioned and is swapped for the shared one when the threads
//! have begun the second phase, while they call it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use refit_objects::{
    Implementations, OwnedRep, Root, SwapOptions, TransferError, create, destroy, interface,
    swap_named,
};

use crate::stats::Sample;

/// The number of calls of each thread in each phase, as in the paper.
const CALLS: u64 = 100_000;
const ROUNDS: usize = 21;

/// A counter.
#[interface(name = "total", state = u64)]
pub(crate) trait Total {
    /// Adds one.
    fn update(&self);
    /// Returns the current number.
    fn read(&self) -> u64;
}

struct Shared(Arc<AtomicU64>);

impl Total for Shared {
    fn update(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

type Parts = Arc<[CachePadded<Mutex<u64>>]>;

struct Partitioned {
    parts: Parts,
    own: usize,
}

fn lock(part: &Mutex<u64>) -> MutexGuard<'_, u64> {
    part.lock()
}

impl Total for Partitioned {
    fn update(&self) {
        *lock(&self.parts[self.own]) += 1;
    }
    fn read(&self) -> u64 {
        // All locks at once, so that the sum is one that the counter has had.
        let guards: Vec<_> = self.parts.iter().map(|part| lock(part)).collect();
        guards.iter().map(|guard| **guard).sum()
    }
}

impl Root<TotalInterface> for Shared {
    fn implementation(&self) -> &str {
        "shared"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<TotalInterface> {
        TotalInterface::rep(Shared(Arc::clone(&self.0)))
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.read())
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.0.store(state, Ordering::Relaxed);
        Ok(())
    }
}

impl Root<TotalInterface> for Partitioned {
    fn implementation(&self) -> &str {
        "partitioned"
    }
    fn cluster(&self, processor: usize) -> usize {
        processor
    }
    fn make_rep(&self, processor: usize) -> OwnedRep<TotalInterface> {
        TotalInterface::rep(Partitioned { parts: Arc::clone(&self.parts), own: processor })
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.read())
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        *lock(&self.parts[0]) = state;
        Ok(())
    }
}

struct Both;

impl Implementations<TotalInterface> for Both {
    fn names(&self) -> Vec<&'static str> {
        vec!["shared", "partitioned"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<TotalInterface>>> {
        let part = |_| CachePadded::new(Mutex::new(0));
        match name {
            "shared" => Some(Box::new(Shared(Arc::default()))),
            "partitioned" => Some(Box::new(Partitioned {
                parts: (0..refit_sys::processor::count()).map(part).collect(),
                own: 0,
            })),
            _ => None,
        }
    }
}

/// The phases that the threads work through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    Update,
    Read,
    Both,
}

pub(crate) const PATTERNS: [(Pattern, &str); 3] =
    [(Pattern::Update, "update"), (Pattern::Read, "read"), (Pattern::Both, "two-phase")];

/// The implementations; the last one only in the two-phase test.
pub(crate) const CONTENDERS: [&str; 3] = ["shared", "partitioned", "switched"];

/// Nanoseconds per call: `[pattern][contender][threads - 1]`.
pub(crate) type Phases = [[Vec<Sample>; 3]; 3];

/// Returns the maximum number of threads: twice the number of processors.
fn most_threads() -> usize {
    refit_sys::processor::count() * 2
}

pub(crate) fn measure() -> Phases {
    let empty = || vec![Sample::default(); most_threads()];
    let mut phases: Phases = std::array::from_fn(|_| std::array::from_fn(|_| empty()));
    for _ in 0..ROUNDS {
        for threads in 1..=most_threads() {
            for (p, (pattern, _)) in PATTERNS.into_iter().enumerate() {
                for (c, contender) in CONTENDERS.into_iter().enumerate() {
                    if contender == "switched" && pattern != Pattern::Both {
                        continue;
                    }
                    phases[p][c][threads - 1].push(run(pattern, contender, threads));
                }
            }
        }
    }
    phases
}

/// Returns the nanoseconds per call and thread, from the first thread's start to the last one's
/// end.
fn run(pattern: Pattern, contender: &str, threads: usize) -> f64 {
    let switched = contender == "switched";
    let first = if switched { "partitioned" } else { contender };
    let root = Both.root(first).expect("it is in the list");
    let total: TotalRef = create("bench", root, Arc::new(Both));
    let (update, read) = (pattern != Pattern::Read, pattern != Pattern::Update);
    let barrier = Barrier::new(threads + usize::from(switched));
    let times = std::thread::scope(|scope| {
        let worker = || {
            barrier.wait();
            let began = Instant::now();
            if update {
                (0..CALLS).for_each(|_| total.update());
            }
            if update && read {
                barrier.wait();
            }
            if read {
                (0..CALLS).for_each(|_| assert!(total.read() <= CALLS * threads as u64));
            }
            (began, Instant::now())
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        if switched {
            barrier.wait();
            barrier.wait();
            let report = swap_named(total.id(), "shared", 1, &SwapOptions::default());
            assert!(report.committed(), "{report:?}");
        }
        workers.into_iter().map(|w| w.join().expect("no panic")).collect::<Vec<_>>()
    });
    if update {
        assert_eq!(total.read(), CALLS * threads as u64, "nothing was lost");
    }
    destroy(total.id());
    let (began, ended) =
        times.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).expect("one");
    let calls = CALLS * (u64::from(update) + u64::from(read));
    (ended - began).as_nanos() as f64 / calls as f64
}
