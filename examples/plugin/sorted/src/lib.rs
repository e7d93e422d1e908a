//! A plugin with a store that keeps its keys sorted. It is built separately from the host that
//! loads it:
//!
//! ```sh
//! cargo build -p example-store-sorted && refit load target/debug/libexample_store_sorted.so
//! ```

use std::collections::BTreeMap;

use example_store::{Locked, Pairs, Store, StoreInterface};
use refit_objects::{OwnedRep, Root, State, TransferError};

/// A sorted map with a lock, with some special behaviour for the tests of loading.
#[derive(Clone, Default)]
struct Sorted(Locked<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Store for Sorted {
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        assert!(key != b"panic", "this key panics in a plugin");
        self.0.put(key, value)
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        // The value identifies the build that serves the call.
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

/// An implementation that accepts no state.
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
        // It panics at once if there is much state, and otherwise only when it creates a
        // representative.
        assert!(state.len() < 10, "too much state for me");
        Ok(())
    }
}

refit_objects::plugin! {
    StoreInterface: "sorted" => || Box::new(SortedRoot(Sorted::default())),
    StoreInterface: "broken" => || Box::new(Broken),
}

/// Runs when the library is loaded, before any function of it is called.
#[cfg(feature = "crashes")]
mod constructor {
    extern "C" fn crash() {
        std::process::abort();
    }

    #[used]
    #[unsafe(link_section = ".init_array")]
    static CONSTRUCTOR: extern "C" fn() = crash;
}
