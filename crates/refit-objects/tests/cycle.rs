//! Two objects are swapped at once, and a call of each calls the other: nobody can go on before one swap gives up
//! (Hui 2000, §4.4.2).

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{CounterRef, Hold, counter};
use refit_change::{Phase, Report};
use refit_objects::{SwapOptions, destroy, object, swap_named};

/// What the two swaps and the two calls tell each other.
#[derive(Default)]
struct Stage {
    /// Swaps whose mediator is in place, so that requests which begin now are not waited for.
    installed: AtomicUsize,
    /// Swaps that block new calls.
    blocking: AtomicUsize,
    /// A swap has ended: what is not so by now will not be.
    over: AtomicBool,
}

impl Stage {
    /// Waits until both swaps have come to this.
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

/// Swaps an object. When its mediator is in place a thread goes in, which calls `other` from inside as soon as both
/// objects block new calls.
fn swap_with_a_call_inside(
    stage: &Arc<Stage>,
    [c, other]: [CounterRef; 2],
    options: SwapOptions,
) -> Report {
    let [inside, blocked] = [const { AtomicBool::new(false) }; 2];
    let hook = {
        let stage = Arc::clone(stage);
        move |phase| {
            // In the first attempt; in later ones the calls are inside already.
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
    // On a thread of its own: the hook must go on for the object to block.
    std::thread::spawn(move || {
        stage.wait(|| stage.blocking.load(Ordering::Acquire) == 2);
        hold.release();
    });
}

/// Both swaps, that of the first object with these options; the names are fresh each time.
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

/// A swap waits for all requests of the process that began before it: two scenes would be in each other's way.
static SCENE: Mutex<()> = Mutex::new(());

/// Repeats the scene until the two calls really wait for each other: where the machine is slow the deadline may pass
/// before. `seen` looks at the reports.
fn until_it_is_a_cycle(
    options: &SwapOptions,
    seen: impl Fn(&[CounterRef; 2], &[Report; 2]) -> bool,
) {
    let _alone = SCENE.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..120 {
        let (objects, reports) = cross(round, options.clone());
        let done = seen(&objects, &reports);
        // Whatever happened: both calls came through, and were counted once.
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
        // That one gave up lets the other one through.
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
        // Once it was in the way of the other one.
        first.attempts > 1
    });
}
