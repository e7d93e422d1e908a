//! Many swaps under load, with every call accounted for: answered exactly once, and in the order of
//! its thread.
//!
//! The normal run is short; `ci/soak.sh` makes a million swaps and more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use refit_objects::{
    Implementations, OwnedRep, Root, SwapOptions, TransferError, create, destroy, interface,
    request, settle, swap_named,
};

/// The maximum number of threads that call at once; `REFIT_SOAK_THREADS` sets the number. With one
/// thread more than there are processors, each swap waits for a thread that is not running, for a
/// turn of the scheduler.
const THREADS: usize = 8;

/// An object in which threads note their calls.
#[interface(name = "ledger", state = Vec<u64>)]
pub trait Ledger {
    /// Notes call `n` of a thread; returns the number of its calls that were noted before.
    fn note(&self, thread: usize, n: u64) -> u64;
    /// Notes call `n` by a call from inside.
    fn note_inside(&self, again: LedgerRef, thread: usize, n: u64) -> u64;
}

/// The notes, under one lock for all threads or one for each.
struct Notes {
    name: &'static str,
    locks: Arc<[Mutex<Vec<u64>>]>,
}

impl Notes {
    fn new(name: &'static str) -> Self {
        let locks = if name == "one lock" { 1 } else { THREADS };
        Notes { name, locks: (0..locks).map(|_| Mutex::new(vec![0; THREADS])).collect() }
    }

    fn again(&self) -> Self {
        Notes { name: self.name, locks: Arc::clone(&self.locks) }
    }

    fn lock(&self, thread: usize) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.locks[thread % self.locks.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for Notes {
    fn note(&self, thread: usize, n: u64) -> u64 {
        let mut counts = self.lock(thread);
        let before = counts[thread];
        assert_eq!(before, n, "thread {thread}: lost, repeated or out of order");
        counts[thread] += 1;
        before
    }

    fn note_inside(&self, again: LedgerRef, thread: usize, n: u64) -> u64 {
        again.note(thread, n)
    }
}

impl Root<LedgerInterface> for Notes {
    fn implementation(&self) -> &str {
        self.name
    }

    fn cluster(&self, processor: usize) -> usize {
        if self.locks.len() == 1 { 0 } else { processor }
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<LedgerInterface> {
        LedgerInterface::rep(self.again())
    }

    fn export(&self) -> Result<Vec<u64>, TransferError> {
        Ok((0..THREADS).map(|thread| self.lock(thread)[thread]).collect())
    }

    fn import(&self, state: Vec<u64>) -> Result<(), TransferError> {
        (0..THREADS).for_each(|thread| self.lock(thread)[thread] = state[thread]);
        Ok(())
    }
}

struct Both;

impl Implementations<LedgerInterface> for Both {
    fn names(&self) -> Vec<&'static str> {
        vec!["one lock", "a lock each"]
    }

    fn root(&self, name: &str) -> Option<Box<dyn Root<LedgerInterface>>> {
        let name = self.names().into_iter().find(|n| *n == name)?;
        Some(Box::new(Notes::new(name)))
    }
}

#[test]
fn every_call_is_answered_once_and_in_order() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let swaps = number("REFIT_SOAK_SWAPS").unwrap_or(2_000);
    let threads = number("REFIT_SOAK_THREADS").map_or(3, |n| n.clamp(1, THREADS as u64) as usize);
    let root = Both.root("one lock").expect("it is in the list");
    let ledger: LedgerRef = create("soak", root, Arc::new(Both));
    let stop = AtomicBool::new(false);
    let noted: [AtomicU64; THREADS] = Default::default();
    std::thread::scope(|scope| {
        for (thread, noted) in noted.iter().enumerate().take(threads) {
            let stop = &stop;
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let answers = match n % 3 {
                        0 => [ledger.note(thread, n); 1],
                        1 => [ledger.note_inside(ledger, thread, n); 1],
                        _ => request(|| [ledger.note(thread, n)]),
                    };
                    assert_eq!(answers, [n], "each call has its own answer");
                    n += 1;
                }
                noted.store(n, Ordering::Relaxed);
            });
        }
        let options = SwapOptions { deadline: Duration::from_secs(60), ..SwapOptions::default() };
        for n in 0..swaps {
            let to = ["a lock each", "one lock"][n as usize % 2];
            let report = swap_named(ledger.id(), to, n, &options);
            assert!(report.committed(), "{report:?}");
            if n % 100_000 == 99_999 {
                println!("{} swaps", n + 1);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for (thread, noted) in noted.iter().enumerate().take(threads) {
        let calls = noted.load(Ordering::Relaxed);
        assert!(calls > 0);
        assert_eq!(ledger.note(thread, calls), calls, "what was answered is what was noted");
    }
    destroy(ledger.id());
    while settle() > 0 {
        std::thread::yield_now();
    }
}
