//! Two objects are swapped at once, and a call of each calls the other: neither swap can continue
//! before the other gives up (Hui 2000, §4.4.2).

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{CounterRef, Hold, counter};
use refit_change::{Phase, Report};
use refit_objects::{SwapOptions, destroy, object, swap_named};

/// The state through which the two swaps and the two calls synchronize.
#[derive(Default)]
struct Stage {
    /// The number of swaps whose mediator is in place, so that they do not wait for requests which
    /// begin now.
    installed: AtomicUsize,
    /// The number of swaps that block new calls.
    blocking: AtomicUsize,
    /// Whether a swap has ended; a condition that does not hold by then never will.
    over: AtomicBool,
}

impl Stage {
    /// Waits until both swaps have reached this point.
    fn meet(&self, place: &AtomicUsize) {
        place.fetch_add(1, Ordering::AcqRel);
        self.wait(|| place.load(Ordering::Acquire) == 2);
    }

    fn wait(&self, until: impl Fn() -> bool) {
        while !until() && !self.over.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

/// Swaps an object. When its mediator is in place, a thread calls the object, and from inside of it
/// calls `other` as soon as both objects block new calls.
fn swap_with_a_call_inside(
    stage: &Arc<Stage>,
    [c, other]: [CounterRef; 2],
    options: SwapOptions,
) -> Report {
    let [inside, blocked] = [const { AtomicBool::new(false) }; 2];
    let hook = {
        let stage = Arc::clone(stage);
        move |phase| {
            // Only in the first attempt; in later ones the calls are already inside.
            if phase == Phase::Install && !inside.swap(true, Ordering::Relaxed) {
                stage.meet(&stage.installed);
                go_inside(&stage, c, other);
            } else if phase == Phase::Quiesce && !blocked.swap(true, Ordering::Relaxed) {
                stage.meet(&stage.blocking);
            }
            Ok(())
        }
    };
    let report = swap_named(
        c.id(),
        "partitioned",
        1,
        &SwapOptions { hook: Some(Arc::new(hook)), ..options },
    );
    stage.over.store(true, Ordering::Release);
    report
}

fn go_inside(stage: &Arc<Stage>, c: CounterRef, other: CounterRef) {
    let hold = Arc::new(Hold::default());
    let (stays, stage) = (Arc::clone(&hold), Arc::clone(stage));
    let name = object(c.id()).expect("it lives").name.replace("counter:", "in-");
    let named = std::thread::Builder::new().name(name);
    named.spawn(move || c.stay(&stays, other)).expect("a thread can be started");
    hold.wait_inside();
    // On a thread of its own, because the hook must return before the object blocks.
    std::thread::spawn(move || {
        stage.wait(|| stage.blocking.load(Ordering::Acquire) == 2);
        hold.release();
    });
}

/// Runs both swaps, that of the first object with these options. The names are new each time.
fn cross(round: usize, options: SwapOptions) -> ([CounterRef; 2], [Report; 2]) {
    let [a, b] = ["a", "b"].map(|name| counter(&format!("{name}{round}"), "shared"));
    let stage = Arc::new(Stage::default());
    let patient = SwapOptions { deadline: Duration::from_secs(120), ..Default::default() };
    let reports = std::thread::scope(|scope| {
        let second = scope.spawn(|| swap_with_a_call_inside(&stage, [b, a], patient));
        let first = swap_with_a_call_inside(&stage, [a, b], options);
        [first, second.join().expect("no panic")]
    });
    ([a, b], reports)
}

/// Serializes the scenes. A swap waits for all requests of the process that began before it, so
/// that two scenes would disturb each other.
static SCENE: Mutex<()> = Mutex::new(());

/// Repeats the scene until the two calls really wait for each other; on a slow machine the deadline
/// may pass earlier. `seen` examines the reports.
fn until_it_is_a_cycle(
    options: &SwapOptions,
    seen: impl Fn(&[CounterRef; 2], &[Report; 2]) -> bool,
) {
    let _alone = SCENE.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..120 {
        let (objects, reports) = cross(round, options.clone());
        let done = seen(&objects, &reports);
        // In every case both calls have completed and were counted once.
        for c in objects {
            while c.sum() != 1 {
                std::thread::yield_now();
            }
            destroy(c.id());
        }
        if done {
            return;
        }
    }
    panic!("the calls never waited for each other, or no report said so");
}

#[test]
fn a_cyclic_wait_ends_by_deadline_and_the_report_names_the_edge() {
    let late = SwapOptions { deadline: Duration::from_secs(1), ..Default::default() };
    until_it_is_a_cycle(&late, |[a, b], [first, second]| {
        let (a, b) = (object(a.id()).expect("it lives"), object(b.id()).expect("it lives"));
        let edge = first.blockers.iter().find(|blocker| !blocker.waits_for.is_empty());
        let Some(edge) = edge else { return false };
        assert!(first.rolled_back() && first.late, "{first:?}");
        assert_eq!(edge.object, a.name);
        assert_eq!(edge.method, "stay");
        assert_eq!(edge.thread, a.name.replace("counter:", "in-"));
        assert_eq!(edge.waits_for, b.name);
        assert!(edge.age_us > 0);
        // The other swap continues once this one has given up.
        assert!(second.committed(), "{second:?}");
        assert_eq!([&*a.implementation, &*b.implementation], ["shared", "partitioned"]);
        true
    });
}

#[test]
fn a_swap_that_gave_up_in_a_cycle_is_done_when_it_is_tried_again() {
    let again =
        SwapOptions { deadline: Duration::from_secs(1), retries: 100, ..Default::default() };
    until_it_is_a_cycle(&again, |_, [first, second]| {
        assert!(first.committed(), "{first:?}");
        assert!(second.committed(), "{second:?}");
        // The first attempt conflicted with the other swap.
        first.attempts > 1
    });
}
