//! A swap can be cancelled in every phase and while it waits for anything; then nothing has
//! changed.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{CounterRef, Hold, counter};
use refit_change::{End, Phase, Report};
use refit_objects::{SwapOptions, destroy, object, swap_named, swap_together};

const PHASES: [Phase; 5] =
    [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit];

/// Options of a swap that is cancelled when it comes to a phase, if to any; and the handle.
fn cancelled_at(at: Option<Phase>) -> (SwapOptions, Arc<AtomicBool>) {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    let hook = move |phase| {
        flag.fetch_or(Some(phase) == at, Ordering::Relaxed);
        Ok(())
    };
    let options = SwapOptions {
        deadline: Duration::from_secs(120),
        cancel: Some(Arc::clone(&cancel)),
        hook: Some(Arc::new(hook)),
        ..SwapOptions::default()
    };
    (options, cancel)
}

fn assert_cancelled(report: &Report, objects: &[CounterRef]) {
    let why = "its requester went away";
    assert!(matches!(&report.end, End::RolledBack(w) | End::Refused(w) if w == why), "{report:?}");
    for c in objects {
        let before = c.add(1);
        assert_eq!(
            (before + 1, "shared"),
            (c.sum(), &*object(c.id()).expect("lives").implementation)
        );
    }
}

#[test]
fn in_every_phase() {
    let [a, b] = ["every-a", "every-b"].map(|name| counter(name, "shared"));
    for at in PHASES {
        let (options, _) = cancelled_at(Some(at));
        let report = swap_named(a.id(), "partitioned", 1, &options);
        assert_cancelled(&report, &[a]);
        // It got as far as that, and no further.
        let reached = report.phases.iter().map(|time| time.phase).filter(|p| *p != Phase::RollBack);
        let before = PHASES.into_iter().take_while(|phase| *phase != at);
        // The commit begins when nothing can stop it any more.
        let expected: Vec<_> = before.chain((at != Phase::Commit).then_some(at)).collect();
        assert_eq!(reached.collect::<Vec<_>>(), expected);
        let (options, _) = cancelled_at(Some(at));
        let both = [(a.id(), "partitioned"), (b.id(), "partitioned")];
        assert_cancelled(&swap_together(&both, 2, &options), &[a, b]);
    }
    assert_eq!([a.sum(), b.sum()], [10, 5]);
    [a, b].into_iter().for_each(|c| destroy(c.id()));
}

/// Cancels a swap when `wait` returns, on a thread beside it.
fn cancelled_when(c: CounterRef, wait: impl FnOnce() + Send) -> Report {
    let (options, cancel) = cancelled_at(None);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            wait();
            cancel.store(true, Ordering::Relaxed);
        });
        swap_named(c.id(), "partitioned", 1, &options)
    })
}

#[test]
fn while_it_waits_for_calls_that_are_inside() {
    let c = counter("waits", "shared");
    let hold = Hold::default();
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| c.stay(&hold, c));
        hold.wait_inside();
        // The call stays, so the swap cannot end but by this.
        let mediated = || object(c.id()).is_some_and(|info| info.implementation.contains('→'));
        let report = cancelled_when(c, || {
            while !mediated() {
                std::thread::yield_now();
            }
        });
        assert_cancelled(&report, &[c]);
        hold.release();
        inside.join().expect("no panic");
    });
    destroy(c.id());
}

#[test]
fn while_it_queues_for_the_object() {
    let c = counter("queues", "shared");
    let (first, second) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let hook = {
        let (first, second) = (Arc::clone(&first), Arc::clone(&second));
        move |phase| {
            if phase == Phase::Prepare {
                first.store(true, Ordering::Release);
                while !second.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                return Err("only to be in the way".into());
            }
            Ok(())
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let options = SwapOptions {
                deadline: Duration::from_secs(120),
                hook: Some(Arc::new(hook)),
                ..SwapOptions::default()
            };
            swap_named(c.id(), "partitioned", 1, &options)
        });
        while !first.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        // The first swap holds the object until the second has given up.
        let report = cancelled_when(c, || ());
        assert!(matches!(report.end, End::Refused(_)), "{report:?}");
        second.store(true, Ordering::Release);
        assert_cancelled(&report, &[c]);
    });
    destroy(c.id());
}

#[test]
fn between_two_attempts() {
    let c = counter("between", "shared");
    let hold = Hold::default();
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| c.stay(&hold, c));
        hold.wait_inside();
        let (options, cancel) = cancelled_at(None);
        // Every attempt is late; without the cancel the pauses between them would add up to hours.
        let options = SwapOptions { deadline: Duration::ZERO, retries: 1_000_000, ..options };
        scope.spawn(move || cancel.store(true, Ordering::Relaxed));
        let report = swap_named(c.id(), "partitioned", 1, &options);
        assert!(!report.committed() && report.attempts < 1_000_000, "{report:?}");
        hold.release();
        inside.join().expect("no panic");
    });
    assert_eq!(object(c.id()).expect("it lives").implementation, "shared");
    destroy(c.id());
}
