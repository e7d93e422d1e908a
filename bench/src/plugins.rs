//! Measures a call of a loaded implementation, whose arguments and results cross the C ABI.
//!
//! The plugin is the example that `bench/run` builds beside this program. One method takes and
//! returns numbers only; the other one takes a slice and returns owned memory, which is therefore
//! copied.

use std::hint::black_box;
use std::sync::Arc;

use example_store::{Own, StoreInterface, StoreRef};
use refit_objects::{Implementations, SwapOptions, create, destroy, plugin, swap_named};

use crate::calls::time;
use crate::stats::Sample;

const ROUNDS: usize = 21;

/// Nanoseconds per call of the host's own implementation and of the loaded one.
#[derive(Default)]
pub(crate) struct Plugins {
    pub(crate) count: [Sample; 2],
    pub(crate) get: [Sample; 2],
}

pub(crate) fn measure() -> Result<Plugins, String> {
    plugin::accept::<StoreInterface>();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let path = program.with_file_name("libexample_store_sorted.so");
    plugin::load(&path).map_err(|error| error.to_string())?;
    let stores = ["hashed", "sorted"].map(store);
    let mut plugins = Plugins::default();
    for round in 0..=ROUNDS {
        for (n, store) in stores.iter().enumerate() {
            let count = time(|n| n + black_box(store.count()));
            let get = time(|n| n + black_box(store.get(b"key")).map_or(0, |_| 1));
            // The first round warms up.
            if round > 0 {
                plugins.count[n].push(count);
                plugins.get[n].push(get);
            }
        }
    }
    stores.into_iter().for_each(|store| destroy(store.id()));
    Ok(plugins)
}

/// Creates a store with one value in it, so that a count adds one.
fn store(implementation: &str) -> StoreRef {
    let root = Own.root("hashed").expect("the host has it");
    let store: StoreRef = create(format!("bench-{implementation}"), root, Arc::new(Own));
    store.put(b"key", b"value");
    let report = swap_named(store.id(), implementation, 0, &SwapOptions::default());
    assert!(report.committed(), "{report:?}");
    store
}
