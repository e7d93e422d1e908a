//! Wrappers that note what they see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use refit_objects::{After, PostCall, PreCall, Wrapper};

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

/// Panics at the configured place.
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
