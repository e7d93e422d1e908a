//! A counter with two wrappers: one that fits any object, and one that is specific to counters.
//!
//! `wrapped` shows their effect; `wrapped bare|before|both|typed N` makes N calls and nothing else,
//! so that the instructions of a call can be counted from outside: `valgrind --tool=callgrind
//! target/release/examples/wrapped both 1000000`.

use std::sync::atomic::{AtomicU64, Ordering};

use refit_objects::{
    After, Choices, PostCall, Pre, PreCall, State, TransferError, Wrapper, attach, attach_typed,
    interface, object,
};

/// An object that adds up numbers.
#[interface(name = "counter", state = u64)]
trait Counter {
    /// Adds `n`, and returns the sum before.
    fn add(&self, n: u64) -> u64;
}

#[derive(Default)]
struct Sum(AtomicU64);

impl Counter for Sum {
    fn add(&self, n: u64) -> u64 {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before + n, Ordering::Relaxed);
        before
    }
}

impl State<u64> for Sum {
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.0.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.0.store(state, Ordering::Relaxed);
        Ok(())
    }
}

/// A wrapper of any object that does nothing.
struct Empty {
    post: bool,
}

impl Wrapper for Empty {
    fn name(&self) -> &str {
        "empty"
    }
    fn precall(&self, _call: &PreCall<'_>) -> After {
        if self.post { After::Postcall(0) } else { After::Forward }
    }
    fn postcall(&self, _call: &PostCall<'_>) {}
}

/// A wrapper of counters that permits no addition of more than ten at once.
struct AtMostTen;

impl CounterWrapper for AtMostTen {
    fn pre_add(&self, n: &mut u64) -> Pre<u64> {
        *n = (*n).min(10);
        Pre::Forward
    }
}

fn main() {
    let choices = Choices::new().with("sum", CounterInterface::rep, Sum::default);
    let counter = choices.create("example", "sum").expect("it is in the list");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let how = arguments.first().map_or("shown", String::as_str);
    let calls: u64 = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let attached = match how {
        "before" => attach(counter.id(), Empty { post: false }).map(drop),
        "both" => attach(counter.id(), Empty { post: true }).map(drop),
        "typed" | "shown" => {
            attach_typed(counter, CounterInterface::wrapper("at most ten", AtMostTen)).map(drop)
        }
        _ => Ok(()),
    };
    attached.expect("the object lives");
    for _ in 0..calls {
        counter.add(1);
    }
    if how == "shown" {
        counter.add(3);
        counter.add(1000);
        let around = object(counter.id()).map(|info| info.wrappers).unwrap_or_default();
        println!("{}: the sum is {}", around[0].name, counter.add(0));
    }
}
