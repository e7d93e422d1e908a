//! The object of the micro-benchmarks: a counter whose method costs next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use refit_objects::{Implementations, OwnedRep, Root, TransferError, interface};

/// A counter that remembers a number.
#[interface(name = "counter", state = u64)]
pub(crate) trait Counter {
    /// Returns `n + 1`, and remembers `n`.
    fn next(&self, n: u64) -> u64;
}

/// The implementation, for plain `dyn` calls as well as behind the table.
#[derive(Default)]
pub(crate) struct Plain(AtomicU64);

impl Counter for Plain {
    #[inline(never)]
    fn next(&self, n: u64) -> u64 {
        self.0.store(n, Ordering::Relaxed);
        n + 1
    }
}

/// The root, under one of its names.
struct PlainRoot(&'static str, AtomicU64);

impl Root<CounterInterface> for PlainRoot {
    fn implementation(&self) -> &str {
        self.0
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<CounterInterface> {
        CounterInterface::rep(Plain::default())
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.1.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.1.store(state, Ordering::Relaxed);
        Ok(())
    }
    fn transfers_promptly(&self) -> bool {
        self.0 != "unpromised"
    }
}

/// One implementation under two names, so that a class can be switched back and forth, and one that
/// does not promise to transfer its state promptly.
pub(crate) struct Both;

impl Implementations<CounterInterface> for Both {
    fn names(&self) -> Vec<&'static str> {
        vec!["plain", "other", "unpromised"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<CounterInterface>>> {
        let name = self.names().into_iter().find(|n| *n == name)?;
        Some(Box::new(PlainRoot(name, AtomicU64::new(0))))
    }
}

/// Creates a counter object.
pub(crate) fn object() -> CounterRef {
    refit_objects::create("bench", Box::new(PlainRoot("plain", AtomicU64::new(0))), Arc::new(Both))
}
