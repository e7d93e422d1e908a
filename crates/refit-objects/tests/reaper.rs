//! Detached memory is freed although no thread settles, retires or swaps. The test has a process of
//! its own, so that no other test does.

mod idle;
mod store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use idle::Idle;
use refit_objects::{attach, detach};
use store::store;

#[test]
fn what_was_detached_is_freed_without_anybody_asking() {
    let s = store("reaped");
    // At once, while the reaper takes its time, and after it has fallen asleep and must be woken.
    for pause in [0, 500, 6_000] {
        std::thread::sleep(Duration::from_millis(pause));
        let idle = Arc::new(Idle);
        let id = attach(s.id(), Arc::clone(&idle)).expect("it lives");
        s.add(1);
        detach(s.id(), id).expect("it is attached");
        let until = Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&idle) > 1 {
            assert!(Instant::now() < until, "a detached wrapper is kept");
            std::thread::yield_now();
        }
    }
}
