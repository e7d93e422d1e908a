//! Tests of swaps: nothing is lost, no request that is inside is blocked, and every failure is
//! rolled back.

mod common;
mod late;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::{CounterInterface, CounterRef, Hold, Shared, counter};
use late::until_named;
use refit_change::{End, Phase, Report};
use refit_objects::{
    Ending, OwnedRep, RequestToken, Root, SwapOptions, TransferError, destroy, object, request,
    swap_named,
};

/// Returns options with a long deadline, because other tests of this process hold requests open for
/// a while.
fn patient(hook: impl Fn(Phase) -> Result<(), String> + Send + Sync + 'static) -> SwapOptions {
    SwapOptions {
        deadline: Duration::from_secs(60),
        hook: Some(Arc::new(hook)),
        ..Default::default()
    }
}

fn swap(c: CounterRef, to: &str) -> Report {
    swap_named(
        c.id(),
        to,
        1,
        &SwapOptions { deadline: Duration::from_secs(60), ..Default::default() },
    )
}

#[test]
fn state_survives_every_pair_of_implementations() {
    let c = counter("pairs", "shared");
    for (n, to) in ["partitioned", "partitioned", "shared", "shared"].into_iter().enumerate() {
        c.add(1);
        let from = object(c.id()).expect("it lives").implementation;
        let report = swap(c, to);
        assert!(report.committed(), "{report:?}");
        assert_eq!((&*report.change.from, &*report.change.to), (&*from, to));
        assert_eq!(object(c.id()).expect("it lives").implementation, to);
        assert_eq!(c.sum(), n as u64 + 1);
        let phases: Vec<_> = report.phases.iter().map(|p| p.phase).collect();
        let expected =
            [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit];
        assert_eq!(phases, expected);
    }
    destroy(c.id());
}

/// Threads add while the object is swapped back and forth; every addition is counted once.
#[test]
fn no_call_is_lost_or_repeated_under_load() {
    let c = counter("load", "shared");
    let stop = AtomicBool::new(false);
    let added = AtomicU64::new(0);
    let swaps = 2_000;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut mine = 0;
                while !stop.load(Ordering::Relaxed) {
                    request(|| c.add(1));
                    c.nest(c, 3);
                    mine += 2;
                }
                added.fetch_add(mine, Ordering::Relaxed);
            });
        }
        for n in 0..swaps {
            let to = if n % 2 == 0 { "partitioned" } else { "shared" };
            let report = swap(c, to);
            assert!(report.committed(), "{report:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(c.sum(), added.load(Ordering::Relaxed));
    destroy(c.id());
}

/// Starts a call that stays inside until it is released, and waits until it is inside.
fn stay_inside<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    c: CounterRef,
    hold: &'s Hold,
) -> std::thread::ScopedJoinHandle<'s, u64> {
    let named = std::thread::Builder::new().name("stays".into());
    let started = named.spawn_scoped(scope, move || c.stay(hold, c));
    hold.wait_inside();
    started.expect("a thread can be started")
}

#[test]
fn a_missed_deadline_names_who_is_in_the_way_and_changes_nothing() {
    let c = counter("deadline", "shared");
    let hold = Hold::default();
    std::thread::scope(|scope| {
        let inside = stay_inside(scope, c, &hold);
        let options = SwapOptions { deadline: Duration::from_millis(30), ..Default::default() };
        let report = until_named("stays", || swap_named(c.id(), "partitioned", 7, &options));
        assert!(matches!(&report.end, End::RolledBack(why) if why.contains("deadline")));
        // Other tests of this process may be among the blockers.
        let blocker = report.blockers.iter().find(|b| b.object == "counter:deadline");
        let blocker = blocker.expect("the thread that is inside is named");
        assert_eq!((blocker.thread.as_str(), blocker.method.as_str()), ("stays", "stay"));
        assert_eq!(object(c.id()).expect("it lives").implementation, "shared");
        assert_eq!(c.add(1), 0, "the object serves while somebody is still inside");
        hold.release();
        inside.join().expect("no panic");
    });
    assert!(swap(c, "partitioned").committed(), "and it can be swapped afterwards");
    assert_eq!(c.sum(), 2);
    destroy(c.id());
}

/// A call that entered in the forward phase is still inside when new calls are blocked, and calls
/// the object again.
#[test]
fn a_request_that_is_inside_is_never_blocked() {
    let c = counter("reentrant", "shared");
    let hold = Hold::default();
    let (forward, is_forward) = channel();
    let (inside, is_inside) = channel();
    let (block, is_block) = channel();
    let is_inside = std::sync::Mutex::new(is_inside);
    let hook = move |phase| {
        if phase == Phase::Install {
            forward.send(()).expect("the other side waits");
            is_inside.lock().unwrap().recv().expect("the call goes in");
        } else if phase == Phase::Quiesce {
            block.send(()).expect("the other side waits");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let hold = &hold;
        scope.spawn(move || {
            is_forward.recv().expect("the swap begins");
            let call = stay_inside(scope, c, hold);
            inside.send(()).expect("the swapper waits");
            is_block.recv().expect("the swap goes on to block");
            hold.release();
            call.join().expect("no panic");
        });
        let options = patient(hook);
        let report = swap_named(c.id(), "partitioned", 1, &options);
        assert!(report.committed(), "{report:?}");
        assert_eq!(report.forwarded, 3, "the call and the two it made from inside");
    });
    assert_eq!(c.sum(), 1);
    destroy(c.id());
}

/// A tracked call does not leave: the deadline passes while new calls are blocked, and they
/// continue.
#[test]
fn a_tracked_call_that_does_not_leave_is_named() {
    let c = counter("tracked", "shared");
    let hold = Hold::default();
    let (forward, is_forward) = channel();
    let (inside, is_inside) = channel();
    let is_inside = std::sync::Mutex::new(is_inside);
    let began = Instant::now();
    let hook = move |phase| {
        if phase == Phase::Install {
            forward.send(()).expect("the other side waits");
            is_inside.lock().unwrap().recv().expect("the call goes in");
        }
        Ok(())
    };
    let report = std::thread::scope(|scope| {
        let hold = &hold;
        scope.spawn(move || {
            is_forward.recv().expect("the swap begins");
            stay_inside(scope, c, hold);
            inside.send(()).expect("the swapper waits");
        });
        let options = SwapOptions {
            deadline: Duration::from_secs(2),
            hook: Some(Arc::new(hook)),
            ..Default::default()
        };
        let report = swap_named(c.id(), "partitioned", 1, &options);
        let before = c.add(1);
        hold.release(); // Before anything can fail: the scope waits for the call.
        assert_eq!(before, 0);
        report
    });
    assert!(matches!(&report.end, End::RolledBack(why) if why.contains("deadline")));
    if report.phases.iter().any(|p| p.phase == Phase::Quiesce) {
        let blocker = report.blockers.first().expect("somebody is named");
        assert_eq!((blocker.thread.as_str(), blocker.method.as_str()), ("stays", "stay"));
        // No longer than the whole test has taken.
        assert!(blocker.age_us > 0 && Duration::from_micros(blocker.age_us) <= began.elapsed());
    }
    assert_eq!(c.sum(), 2);
    destroy(c.id());
}

/// Nested calls can enter the object in any phase; so can a helper thread with a token.
#[test]
fn nested_calls_and_helpers_with_a_token_never_deadlock() {
    let c = counter("nested", "shared");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    request(|| {
                        c.nest(c, 8);
                        let token = RequestToken::of_this_request();
                        std::thread::scope(|s| {
                            s.spawn(|| token.run(|| c.add(1)));
                        });
                    });
                }
            });
        }
        for n in 0..200 {
            let report = swap(c, if n % 2 == 0 { "partitioned" } else { "shared" });
            assert!(report.committed(), "{report:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    destroy(c.id());
}

#[test]
fn a_failure_at_any_phase_rolls_back() {
    let c = counter("faults", "shared");
    c.add(41);
    let phases = [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit];
    for at in phases {
        for panics in [false, true] {
            let hook = move |phase| if phase == at { Err(format!("no at {at:?}")) } else { Ok(()) };
            let options = patient(hook);
            let to = if panics { "partitioned" } else { "shared" };
            let report = swap_named(c.id(), to, 1, &options);
            assert_eq!(report.end, End::RolledBack(format!("no at {at:?}")));
            assert_eq!(object(c.id()).expect("it lives").implementation, "shared");
        }
    }
    for (to, why) in [
        ("refusing", "transfer failed: import as `canonical`: 41 is not for me"),
        ("panicking", "transfer failed: import as `canonical` panicked: no import"),
    ] {
        assert_eq!(swap(c, to).end, End::RolledBack(why.into()));
    }
    assert_eq!(c.add(1), 41);
    assert!(swap(c, "partitioned").committed());
    assert_eq!(c.sum(), 42);
    destroy(c.id());
}

#[test]
fn blocked_calls_go_on_in_the_old_object_after_a_roll_back() {
    let c = counter("blocked", "shared");
    let before = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let blocking = Arc::clone(&before);
        let hook = move |phase| {
            if phase == Phase::Transfer {
                blocking.store(true, Ordering::Release);
                // Gives the caller time to be blocked; the test holds either way.
                std::thread::sleep(Duration::from_millis(20));
                return Err("changed my mind".into());
            }
            Ok(())
        };
        let blocking = Arc::clone(&before);
        let caller = scope.spawn(move || {
            while !blocking.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            c.add(1)
        });
        let options = patient(hook);
        let report = swap_named(c.id(), "partitioned", 1, &options);
        assert!(matches!(report.end, End::RolledBack(_)));
        assert_eq!(caller.join().expect("no panic"), 0);
    });
    assert_eq!(c.sum(), 1);
    destroy(c.id());
}

#[test]
fn a_requester_that_goes_away_takes_its_swap_back() {
    let c = counter("cancel", "shared");
    let cancel = Arc::new(AtomicBool::new(false));
    let goes = Arc::clone(&cancel);
    let hook = move |phase| {
        if phase == Phase::Quiesce {
            goes.store(true, Ordering::Relaxed);
        }
        Ok(())
    };
    let options = SwapOptions { cancel: Some(cancel), ..patient(hook) };
    let report = swap_named(c.id(), "partitioned", 1, &options);
    assert_eq!(report.end, End::RolledBack("its requester went away".into()));
    assert_eq!(object(c.id()).expect("it lives").implementation, "shared");
    destroy(c.id());
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let c = counter("refused", "shared");
    let report = swap(c, "imaginary");
    assert!(matches!(&report.end, End::Refused(why) if why.contains("shared, partitioned")));
    let report = request(|| swap(c, "partitioned"));
    assert!(matches!(&report.end, End::Refused(why) if why.contains("within a request")));
    destroy(c.id());
    let report = swap(c, "partitioned");
    assert!(matches!(&report.end, End::Refused(why) if why.contains("does not exist")));
}

#[test]
fn swaps_of_one_object_queue() {
    let c = counter("queue", "shared");
    std::thread::scope(|scope| {
        for n in 0..4 {
            scope.spawn(move || {
                for m in 0..200 {
                    let to = if (n + m) % 2 == 0 { "partitioned" } else { "shared" };
                    assert!(swap(c, to).committed());
                    c.add(1);
                }
            });
        }
    });
    assert_eq!(c.sum(), 800);
    destroy(c.id());
}

#[test]
fn an_object_can_be_destroyed_while_it_is_swapped() {
    for _ in 0..200 {
        let c = counter("destroyed", "shared");
        std::thread::scope(|scope| {
            let swapper = scope.spawn(move || swap(c, "partitioned"));
            destroy(c.id());
            let end = swapper.join().expect("no panic").end;
            let allowed = |why: &str| why == "the object is being destroyed";
            assert!(!matches!(&end, End::RolledBack(why) if !allowed(why)), "{end:?}");
        });
    }
}

#[test]
fn a_request_that_the_swap_waits_for_can_destroy_the_object() {
    let c = counter("destroyed from inside", "shared");
    let (installed, waits) = channel();
    let hook = move |phase| {
        if phase == Phase::Install {
            installed.send(()).expect("the test listens");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let (inside, begin) = channel();
        let swapper = scope.spawn(move || {
            begin.recv().expect("the request has begun");
            swap_named(c.id(), "partitioned", 1, &patient(hook))
        });
        request(|| {
            inside.send(()).expect("the swapper listens");
            waits.recv().expect("the swap has begun");
            // The swap waits for this request, and this request for the swap.
            destroy(c.id());
        });
        let report = swapper.join().expect("no panic");
        assert_eq!(report.end, End::RolledBack("the object is being destroyed".into()));
        assert!(report.target_gone, "whoever asked for many objects misses none");
    });
    assert!(object(c.id()).is_none());
}

/// A root of the counter that reports when it relinquishes.
struct Telling {
    sum: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
}

impl Root<CounterInterface> for Telling {
    fn implementation(&self) -> &str {
        "telling"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<CounterInterface> {
        CounterInterface::rep(Shared::default())
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.sum.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.sum.store(state, Ordering::Relaxed);
        Ok(())
    }
    fn relinquish(&self, _ending: Ending<'_>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        panic!("a loser's trouble is nobody else's");
    }
}

#[test]
fn the_loser_of_a_swap_lets_go_once_and_the_winner_never() {
    let c = counter("let-go", "shared");
    let calls: [Arc<AtomicU64>; 2] = Default::default();
    let count = || calls.clone().map(|t| t.load(Ordering::Relaxed));
    let root = |n: usize| {
        Box::new(Telling { sum: Arc::default(), calls: Arc::clone(&calls[n]) })
            as Box<dyn Root<CounterInterface>>
    };
    let never = patient(|phase| if phase == Phase::Commit { Err("no".into()) } else { Ok(()) });
    let fine = patient(|_| Ok(()));
    c.add(5);
    assert!(!refit_objects::swap::<CounterInterface>(c, root(0), 1, &never).committed());
    assert_eq!(count(), [1, 0], "rolled back: the new one");
    assert!(refit_objects::swap::<CounterInterface>(c, root(1), 2, &fine).committed());
    assert_eq!(count(), [1, 0]);
    assert!(swap(c, "shared").committed());
    assert_eq!(count(), [1, 1], "committed: the old one");
    assert_eq!(c.sum(), 5);
    destroy(c.id());
}

/// The blocking request ends between two attempts.
#[test]
fn a_swap_that_is_late_is_tried_again() {
    let c = counter("again", "shared");
    let (hold, begun) = (Hold::default(), Arc::new(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        let caller = stay_inside(scope, c, &hold);
        let late = SwapOptions {
            deadline: Duration::from_millis(50),
            retries: 1,
            ..SwapOptions::default()
        };
        let report = until_named("stays", || swap_named(c.id(), "partitioned", 1, &late));
        assert_eq!(report.attempts, 2);
        // The hook counts the attempts; at the second one the caller may leave.
        scope.spawn(|| {
            while begun.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            hold.release();
        });
        let count = {
            let begun = Arc::clone(&begun);
            move |phase| {
                begun.fetch_add(u64::from(phase == Phase::Prepare), Ordering::Relaxed);
                Ok(())
            }
        };
        let patient = SwapOptions { retries: 1_000, hook: Some(Arc::new(count)), ..late };
        let report = swap_named(c.id(), "partitioned", 2, &patient);
        assert!(report.committed() && report.attempts >= 2, "{report:?}");
        caller.join().expect("no panic");
    });
    destroy(c.id());
}

/// A root that a caller has made can be tried once.
#[test]
fn a_swap_to_a_root_is_not_tried_again() {
    let c = counter("once", "shared");
    let late = SwapOptions { deadline: Duration::ZERO, retries: 3, ..SwapOptions::default() };
    let root = Telling { sum: Arc::default(), calls: Arc::default() };
    let report = refit_objects::swap::<CounterInterface>(c, Box::new(root), 1, &late);
    assert!(report.late && report.attempts == 1, "{report:?}");
    destroy(c.id());
}
