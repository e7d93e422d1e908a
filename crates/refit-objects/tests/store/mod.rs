//! An object whose methods can fail, and wrappers that note what they see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use refit_objects::{
    After, Implementations, OwnedRep, PostCall, PreCall, Root, TransferError, Wrapper, create,
    interface,
};

/// Nothing can be seen of it from outside of the interface.
#[derive(Clone, Copy)]
pub(crate) struct Opaque(pub(crate) u64);

#[interface(name = "store", state = u64)]
pub(crate) trait Store {
    /// Reads; how much.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32>;
    /// Adds; the sum before.
    fn add(&self, n: u64) -> u64;
    /// What is in it.
    fn open(&self, what: Opaque) -> u64;
    /// Panics.
    fn fail(&self);
    /// The sum.
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

/// Notes names of wrappers in the order in which they see things, and what they see.
#[derive(Default)]
pub(crate) struct Notes(pub(crate) Mutex<Vec<String>>);

impl Notes {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(crate) struct Noting {
    pub(crate) name: String,
    pub(crate) notes: Arc<Notes>,
    /// Whether it wants to see calls come back.
    pub(crate) post: bool,
}

impl Wrapper for Noting {
    fn name(&self) -> &str {
        &self.name
    }
    fn precall(&self, call: &PreCall<'_>) -> After {
        self.notes.0.lock().unwrap().push(format!("{} before {}", self.name, call.method_name()));
        if self.post { After::Postcall(call.method() as u64) } else { After::Forward }
    }
    fn postcall(&self, call: &PostCall<'_>) {
        assert_eq!(call.state(), call.method() as u64, "the number comes back");
        let (name, method, how) = (&self.name, call.method_name(), call.outcome());
        self.notes.0.lock().unwrap().push(format!("{name} after {method}: {how:?}"));
    }
}

/// Counts what it sees, and says when it has been dropped.
pub(crate) struct Counting {
    pub(crate) before: AtomicU64,
    pub(crate) after: AtomicU64,
}

impl Counting {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Counting { before: AtomicU64::new(0), after: AtomicU64::new(0) })
    }
}

impl Wrapper for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn precall(&self, _call: &PreCall<'_>) -> After {
        self.before.fetch_add(1, Ordering::Relaxed);
        After::Postcall(0)
    }
    fn postcall(&self, _call: &PostCall<'_>) {
        self.after.fetch_add(1, Ordering::Relaxed);
    }
}

/// Panics where it is told to.
#[derive(Default)]
pub(crate) struct Bomb {
    pub(crate) before: AtomicBool,
    pub(crate) after: AtomicBool,
}

impl Wrapper for Bomb {
    fn name(&self) -> &str {
        "bomb"
    }
    fn precall(&self, _call: &PreCall<'_>) -> After {
        assert!(!self.before.load(Ordering::Relaxed), "before, as asked");
        After::Postcall(0)
    }
    fn postcall(&self, _call: &PostCall<'_>) {
        assert!(!self.after.load(Ordering::Relaxed), "after, as asked");
    }
}
