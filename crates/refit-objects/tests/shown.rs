//! An object that is being swapped is shown as the old one, except for the name of its
//! implementation, which contains both.

#[expect(dead_code, reason = "no call is held inside here")]
mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::counter;
use refit_change::Phase;
use refit_objects::{SwapOptions, destroy, object, swap_named};

#[test]
fn an_object_is_shown_as_it_was_while_it_is_swapped() {
    let c = counter("shown", "shared");
    let deadline = Duration::from_secs(60);
    let clustering = "one".parse().expect("it is a clustering");
    let clustered = SwapOptions { deadline, clustering, ..SwapOptions::default() };
    assert!(swap_named(c.id(), "shared", 1, &clustered).committed());
    c.add(5);
    let before = object(c.id()).expect("it lives");
    assert_eq!((&*before.clustering, before.reps, &*before.stats), ("one", 1, &[("sum", 5)][..]));
    let meanwhile = Arc::new(Mutex::new(None));
    let sees = Arc::clone(&meanwhile);
    let hook = move |phase| {
        if phase == Phase::Transfer {
            *sees.lock().unwrap() = object(c.id());
        }
        Ok(())
    };
    let options = SwapOptions { deadline, hook: Some(Arc::new(hook)), ..SwapOptions::default() };
    assert!(swap_named(c.id(), "partitioned", 2, &options).committed());
    let meanwhile = meanwhile.lock().unwrap().take().expect("it lives then too");
    assert_eq!(meanwhile.implementation, "shared → partitioned");
    assert_eq!(meanwhile.clustering, before.clustering);
    assert_eq!((meanwhile.reps, meanwhile.stats), (before.reps, before.stats));
    destroy(c.id());
}
