//! A counter with two unlike implementations, as the tests' object.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use refit_objects::{Implementations, OwnedRep, Root, TransferError, create, interface};

#[interface(name = "counter", state = u64)]
pub(crate) trait Counter {
    /// Adds `n`, and returns the sum before.
    fn add(&self, n: u64) -> u64;
    /// Calls the given object of the same kind from inside, `depth` times nested; the sum at the
    /// end.
    fn nest(&self, again: CounterRef, depth: u64) -> u64;
    /// Says that it is inside, stays there while it is held, then calls `again` from inside, twice.
    fn stay(&self, hold: &Hold, again: CounterRef) -> u64;
    /// Panics.
    fn fail(&self);
    /// The sum.
    fn sum(&self) -> u64;
}

/// Keeps a call inside an object.
#[derive(Default)]
pub(crate) struct Hold {
    inside: AtomicBool,
    released: AtomicBool,
}

impl Hold {
    fn stay(&self) {
        self.inside.store(true, Ordering::Release);
        while !self.released.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    pub(crate) fn wait_inside(&self) {
        while !self.inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
    }
}

/// One number behind one lock.
#[derive(Default)]
pub(crate) struct Shared(Arc<Mutex<u64>>);

impl Counter for Shared {
    fn add(&self, n: u64) -> u64 {
        let mut sum = self.0.lock().unwrap();
        let before = *sum;
        *sum += n;
        before
    }
    fn nest(&self, again: CounterRef, depth: u64) -> u64 {
        if depth == 0 { self.add(1) } else { again.nest(again, depth - 1) }
    }
    fn stay(&self, hold: &Hold, again: CounterRef) -> u64 {
        hold.stay();
        // The second call finds the thread still inside.
        again.add(0);
        again.add(1)
    }
    fn fail(&self) {
        panic!("as asked");
    }
    fn sum(&self) -> u64 {
        *self.0.lock().unwrap()
    }
}

pub(crate) struct SharedRoot(Arc<Mutex<u64>>);

impl Root<CounterInterface> for SharedRoot {
    fn implementation(&self) -> &str {
        "shared"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<CounterInterface> {
        CounterInterface::rep(Shared(Arc::clone(&self.0)))
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(*self.0.lock().unwrap())
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        *self.0.lock().unwrap() = state;
        Ok(())
    }
    fn stats(&self) -> Vec<(&'static str, u64)> {
        vec![("sum", *self.0.lock().unwrap())]
    }
}

/// One number per processor; the total is only right while no call adds.
pub(crate) struct Partitioned {
    own: usize,
    all: Arc<Vec<AtomicU64>>,
}

impl Counter for Partitioned {
    fn add(&self, n: u64) -> u64 {
        self.all[self.own].fetch_add(n, Ordering::Relaxed)
    }
    fn nest(&self, again: CounterRef, depth: u64) -> u64 {
        if depth == 0 { self.add(1) } else { again.nest(again, depth - 1) }
    }
    fn stay(&self, hold: &Hold, again: CounterRef) -> u64 {
        hold.stay();
        // The second call finds the thread still inside.
        again.add(0);
        again.add(1)
    }
    fn fail(&self) {
        panic!("as asked");
    }
    fn sum(&self) -> u64 {
        self.all.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

pub(crate) struct PartitionedRoot(Arc<Vec<AtomicU64>>);

impl Root<CounterInterface> for PartitionedRoot {
    fn implementation(&self) -> &str {
        "partitioned"
    }
    fn cluster(&self, processor: usize) -> usize {
        processor
    }
    fn make_rep(&self, processor: usize) -> OwnedRep<CounterInterface> {
        CounterInterface::rep(Partitioned { own: processor, all: Arc::clone(&self.0) })
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.0.iter().map(|n| n.load(Ordering::Relaxed)).sum())
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.0[0].store(state, Ordering::Relaxed);
        Ok(())
    }
}

/// Takes no state.
struct Refusing;

impl Root<CounterInterface> for Refusing {
    fn implementation(&self) -> &str {
        "refusing"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<CounterInterface> {
        CounterInterface::rep(Shared::default())
    }
    fn export(&self) -> Result<u64, TransferError> {
        Err(TransferError("never exports".into()))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        Err(TransferError(format!("{state} is not for me")))
    }
}

/// Panics over the state.
struct Panicking;

impl Root<CounterInterface> for Panicking {
    fn implementation(&self) -> &str {
        "panicking"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<CounterInterface> {
        CounterInterface::rep(Shared::default())
    }
    fn export(&self) -> Result<u64, TransferError> {
        panic!("no export")
    }
    fn import(&self, _state: u64) -> Result<(), TransferError> {
        panic!("no import")
    }
}

pub(crate) struct All;

impl Implementations<CounterInterface> for All {
    fn names(&self) -> Vec<&'static str> {
        vec!["shared", "partitioned", "refusing", "panicking"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<CounterInterface>>> {
        let processors = || (0..refit_sys::processor::count()).map(|_| AtomicU64::new(0)).collect();
        Some(match name {
            "shared" => Box::new(SharedRoot(Arc::default())),
            "partitioned" => Box::new(PartitionedRoot(Arc::new(processors()))),
            "refusing" => Box::new(Refusing),
            "panicking" => Box::new(Panicking),
            _ => return None,
        })
    }
}

pub(crate) fn counter(name: &str, implementation: &str) -> CounterRef {
    create(name, All.root(implementation).expect("it is in the list"), Arc::new(All))
}
