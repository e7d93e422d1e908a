//! An object whose methods can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use refit_objects::{Implementations, OwnedRep, Root, TransferError, create, interface};

/// A value whose contents are hidden outside of the interface.
#[derive(Clone, Copy)]
pub(crate) struct Opaque(pub(crate) u64);

#[interface(name = "store", state = u64)]
pub(crate) trait Store {
    /// Reads, and returns the number of bytes.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32>;
    /// Adds `n`, and returns the sum before.
    fn add(&self, n: u64) -> u64;
    /// Returns the contents of `what`.
    fn open(&self, what: Opaque) -> u64;
    /// Panics.
    fn fail(&self);
    /// Returns the sum.
    fn sum(&self) -> u64;
}

pub(crate) struct Plain(Arc<AtomicU64>);

impl Store for Plain {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        if offset == u64::MAX {
            return Err(22);
        }
        buf.fill(7);
        Ok(buf.len())
    }
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }
    fn open(&self, what: Opaque) -> u64 {
        what.0
    }
    fn fail(&self) {
        panic!("as asked");
    }
    fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct PlainRoot(Arc<AtomicU64>, &'static str);

impl Root<StoreInterface> for PlainRoot {
    fn implementation(&self) -> &str {
        self.1
    }
    fn cluster(&self, processor: usize) -> usize {
        if self.1 == "spread" { processor } else { 0 }
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<StoreInterface> {
        StoreInterface::rep(Plain(Arc::clone(&self.0)))
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.0.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.0.store(state, Ordering::Relaxed);
        Ok(())
    }
}

struct All;

impl Implementations<StoreInterface> for All {
    fn names(&self) -> Vec<&'static str> {
        vec!["one", "spread"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<StoreInterface>>> {
        let name = self.names().into_iter().find(|n| *n == name)?;
        Some(Box::new(PlainRoot(Arc::default(), name)))
    }
}

pub(crate) fn store(name: &str) -> StoreRef {
    create(name, All.root("one").expect("it is in the list"), Arc::new(All))
}
