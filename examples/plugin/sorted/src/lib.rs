//! A plugin: a store that keeps its keys sorted. Built apart from the host that loads it:
//!
//! ```sh
//! cargo build -p example-store-sorted && refit load target/debug/libexample_store_sorted.so
//! ```

use std::collections::BTreeMap;

use example_store::{Locked, Pairs, Store, StoreInterface};
use refit_objects::{OwnedRep, Root, State, TransferError};

/// A sorted map behind a lock, with some habits that the tests of loading want to see.
#[derive(Clone, Default)]
struct Sorted(Locked<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Store for Sorted {
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        assert!(key != b"panic", "this key panics in a plugin");
        self.0.put(key, value)
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        // Tells which build serves.
        if key == b"build" {
            return Some(if cfg!(feature = "second") { b"second" } else { b"first!" }.to_vec());
        }
        self.0.get(key)
    }
    fn remove(&self, key: &[u8]) -> bool {
        self.0.remove(key)
    }
    fn count(&self) -> u64 {
        self.0.count()
    }
    fn add(&self, key: &[u8], n: u64) -> u64 {
        self.0.add(key, n)
    }
}

struct SortedRoot(Sorted);

impl Root<StoreInterface> for SortedRoot {
    fn implementation(&self) -> &str {
        "sorted"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<StoreInterface> {
        StoreInterface::rep(self.0.clone())
    }
    fn export(&self) -> Result<Pairs, TransferError> {
        self.0.0.export()
    }
    fn import(&self, state: Pairs) -> Result<(), TransferError> {
        self.0.0.import(state)
    }
    fn stats(&self) -> Vec<(&'static str, u64)> {
        vec![("keys", self.0.count())]
    }
}

/// Takes no state.
struct Broken;

impl Root<StoreInterface> for Broken {
    fn implementation(&self) -> &str {
        "broken"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<StoreInterface> {
        panic!("no rep")
    }
    fn export(&self) -> Result<Pairs, TransferError> {
        Err(TransferError("there is none".into()))
    }
    fn import(&self, state: Pairs) -> Result<(), TransferError> {
        // With much state it panics at once, with little only when it is to make a rep.
        assert!(state.len() < 10, "too much state for me");
        Ok(())
    }
}

refit_objects::plugin! {
    StoreInterface: "sorted" => || Box::new(SortedRoot(Sorted::default())),
    StoreInterface: "broken" => || Box::new(Broken),
}

/// Runs when the library is loaded, before anybody can ask it anything.
#[cfg(feature = "crashes")]
mod constructor {
    extern "C" fn crash() {
        std::process::abort();
    }

    #[used]
    #[unsafe(link_section = ".init_array")]
    static CONSTRUCTOR: extern "C" fn() = crash;
}
