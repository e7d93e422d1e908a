//! A listener and the report mention each call that waits for a swap. The test has a process of its
//! own, because there is one listener.

#[expect(dead_code, reason = "no call is held inside here")]
mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::counter;
use refit_change::Phase;
use refit_change::watch::{Step, during, listen};
use refit_objects::{SwapOptions, destroy, swap_named};

static HEARD: Mutex<Vec<Step>> = Mutex::new(Vec::new());

fn hear(step: Step) {
    if matches!(step, Step::Waits(_) | Step::GoesOn(_)) {
        HEARD.lock().unwrap().push(step);
    }
}

#[test]
fn a_call_tells_when_it_waits_and_when_it_goes_on() {
    assert!(listen(hear));
    let c = counter("told", "shared");
    let caller = Arc::new(Mutex::new(None));
    let calls = Arc::clone(&caller);
    let hook = move |phase| {
        if phase == Phase::Transfer {
            *calls.lock().unwrap() = Some(std::thread::spawn(move || c.add(1)));
            let until = Instant::now() + Duration::from_secs(60);
            while HEARD.lock().unwrap().is_empty() {
                assert!(Instant::now() < until, "it waits and does not tell");
                std::thread::yield_now();
            }
            assert_eq!(*HEARD.lock().unwrap(), [Step::Waits(7)]);
        }
        Ok(())
    };
    let options = SwapOptions {
        deadline: Duration::from_secs(120),
        hook: Some(Arc::new(hook)),
        ..SwapOptions::default()
    };
    let report = during(7, || swap_named(c.id(), "partitioned", 7, &options));
    assert!(report.committed(), "{report:?}");
    assert!(report.blocked == 1 && report.longest_block_ns > 0, "{report:?}");
    let caller = caller.lock().unwrap().take().expect("it was started");
    assert_eq!(caller.join().expect("no panic"), 0);
    assert_eq!(*HEARD.lock().unwrap(), [Step::Waits(7), Step::GoesOn(7)]);
    destroy(c.id());
}
