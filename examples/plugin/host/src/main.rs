//! A host that loads implementations of a store at run time and swaps to them under load:
//!
//! ```sh
//! cargo build -p example-store-sorted
//! cargo run -p example-store-host target/debug/libexample_store_sorted.so sorted
//! ```

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use example_store::{Own, StoreInterface, StoreRef};
use refit_objects::{Implementations, SwapOptions, create, plugin, swap_named};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, implementation] = &arguments[..] else {
        eprintln!("usage: example-store-host PLUGIN IMPLEMENTATION");
        return ExitCode::from(2);
    };
    match run(Path::new(path), implementation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &Path, implementation: &str) -> Result<(), Box<dyn std::error::Error>> {
    // Allows implementations of this interface to be loaded from now on.
    plugin::accept::<StoreInterface>();
    let root = Own.root("hashed").ok_or("it is in the list")?;
    let store: StoreRef = create("example", root, Arc::new(Own));

    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut sum = 0;
            while !ended.load(Ordering::Relaxed) {
                sum = store.add(b"worker", 1);
            }
            sum
        });
        let outcome = plugin::load(path).map_err(Into::into).and_then(|loaded| {
            println!("{} loaded, {} bytes mapped", loaded.package, loaded.mapped_bytes);
            let report = swap_named(store.id(), implementation, 1, &SwapOptions::default());
            println!("swap to {implementation}: {:?}", report.end);
            if report.committed() { Ok(()) } else { Err("the swap failed".into()) }
        });
        ended.store(true, Ordering::Relaxed);
        let sum = worker.join().map_err(|_| "the worker panicked")?;
        println!("the worker added {sum}; nothing was lost: {}", store.add(b"worker", 0) == sum);
        outcome
    })
}
