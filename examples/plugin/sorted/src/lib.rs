//! A plugin: a store that keeps its keys sorted. Built apart from the host that loads it:
//!
//! ```sh
//! cargo build -p example-store-sorted && refit load target/debug/libexample_store_sorted.so
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use example_store::{Pairs, Store, StoreInterface};
use refit_objects::{OwnedRep, Root, TransferError};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Default)]
struct Sorted(Arc<Mutex<Map>>);

impl Sorted {
    fn with<T>(&self, run: impl FnOnce(&mut Map) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for Sorted {
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        assert!(key != b"panic", "this key panics in a plugin");
        self.with(|map| map.insert(key.to_vec(), value.to_vec()))
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        // Tells which build serves.
        if key == b"build" {
            return Some(if cfg!(feature = "second") { b"second" } else { b"first!" }.to_vec());
        }
        self.with(|map| map.get(key).cloned())
    }
    fn remove(&self, key: &[u8]) -> bool {
        self.with(|map| map.remove(key).is_some())
    }
    fn count(&self) -> u64 {
        self.with(|map| map.len() as u64)
    }
    fn add(&self, key: &[u8], n: u64) -> u64 {
        self.with(|map| {
            let before =
                map.get(key).and_then(|b| Some(u64::from_le_bytes((**b).try_into().ok()?)));
            let sum = before.unwrap_or(0).wrapping_add(n);
            map.insert(key.to_vec(), sum.to_le_bytes().to_vec());
            sum
        })
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
        Ok(self.0.with(|map| map.iter().map(|(k, v)| (k.clone(), v.clone())).collect()))
    }
    fn import(&self, state: Pairs) -> Result<(), TransferError> {
        self.0.with(|map| map.extend(state));
        Ok(())
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
