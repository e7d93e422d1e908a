//! Every step of a transfer fails once, in every way it can: the old implementation carries on with
//! all it had.

use std::time::Duration;

use refit_objects::change::End;
use refit_objects::transfer::DrainOptions;
use refit_objects::{SwapOptions, destroy, object, swap_named};

use crate::table::*;

const ITEMS: u64 = 200;

/// Steps that a way of transfer goes through before the commit.
fn steps(way: &str) -> Vec<Step> {
    let mut steps = vec![Step::Protocols, Step::Export, Step::Import, Step::CountNew];
    if way != "referring" {
        steps.push(Step::CountOld); // By reference nothing moves item by item.
    }
    if way == "partitioned" {
        steps.push(Step::Partitions);
    }
    steps
}

#[test]
fn a_fault_before_the_commit_is_taken_back_and_loses_nothing() {
    let mut tried = 0;
    for way in NAMES {
        for step in steps(way) {
            for fault in [Fault::Error, Fault::Panic, Fault::Half] {
                if fault == Fault::Half && step == Step::Protocols {
                    continue; // It is no fault to know fewer.
                }
                let (t, faults) = table("faults", way, ITEMS);
                faults.arm(step, fault);
                let report = swap(t, way);
                let what = format!("{way}, {fault:?} at {step:?}: {report:?}");
                assert!(faults.fired(), "{what}");
                // A fault of one protocol leaves the canonical one; every other fault ends the
                // transfer.
                if step == Step::Partitions {
                    assert!(report.committed(), "{what}");
                    assert_eq!(
                        report.transfers.into_iter().next().expect("it went").route,
                        ["canonical"]
                    );
                } else {
                    assert!(matches!(report.end, End::RolledBack(_) | End::Refused(_)), "{what}");
                }
                assert_eq!(object(t.id()).expect("it lives").implementation, way);
                check(t, ITEMS);
                let report = swap(t, way);
                assert!(report.committed(), "again, after {what}: {report:?}");
                check(t, ITEMS);
                destroy(t.id());
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 3 * (5 * 3 - 1) + (4 * 3 - 1) + 3);
}

#[test]
fn a_loser_that_cannot_let_go_is_in_nobodys_way() {
    for way in NAMES {
        for fault in [Fault::Error, Fault::Panic] {
            let (t, faults) = table("let go", way, ITEMS);
            faults.arm(Step::Relinquish, fault);
            let report = swap(t, way);
            assert!(report.committed() && faults.fired(), "{report:?}");
            check(t, ITEMS);
            destroy(t.id());
        }
    }
}

/// After the commit: the items stay where they are until it works again.
#[test]
fn a_fault_of_the_old_implementation_during_the_drain_loses_nothing() {
    for step in [Step::Keys, Step::Fetch, Step::Drain] {
        for fault in [Fault::Error, Fault::Panic] {
            let (t, faults) = table("drain", "lazy", ITEMS);
            faults.arm(step, fault);
            let report = swap(t, "lazy");
            assert!(report.committed() && faults.fired(), "{step:?}: {report:?}");
            let drained =
                report.transfers.into_iter().next().and_then(|t| t.drained).expect("it was lazy");
            assert_eq!((drained.left, drained.by_drain, &*drained.why), (0, ITEMS, ""), "{step:?}");
            check(t, ITEMS);
            destroy(t.id());
        }
    }
}

/// At the deadline the rest is moved at once. If that fails too, the drain ends.
#[test]
fn a_drain_that_fails_at_its_deadline_is_not_tried_again() {
    let (t, faults) = table("end", "lazy", ITEMS);
    faults.arm(Step::Keys, Fault::Errors(2));
    let at_once = DrainOptions { deadline: Duration::ZERO, ..DrainOptions::default() };
    let options = SwapOptions { drain: at_once, ..patient() };
    let report = swap_named(t.id(), "lazy", 1, &options);
    assert!(report.committed(), "{report:?}");
    let drained = report.transfers[0].drained.as_ref().expect("it was lazy");
    assert_eq!((drained.left, drained.forced), (ITEMS, true), "{report:?}");
    assert!(drained.why.contains("no Keys today"), "{report:?}");
    assert_eq!(faults.armed(), Some((Step::Keys, Fault::Errors(1))));
    check(t, ITEMS);
    destroy(t.id());
}

/// Otherwise the thread that destroys the object would wait for the drain, up to its deadline.
#[test]
fn a_drain_ends_when_its_object_is_destroyed() {
    let (t, faults) = table("doomed", "lazy", ITEMS);
    let always = (Step::Keys, Fault::Errors(u32::MAX));
    faults.arm(always.0, always.1);
    let report = std::thread::scope(|scope| {
        let drain = DrainOptions { deadline: Duration::from_secs(20), ..patient().drain };
        let options = SwapOptions { drain, ..patient() };
        let swap = scope.spawn(move || swap_named(t.id(), "lazy", 1, &options));
        // The drain has begun, so the swap has committed.
        while faults.armed() == Some(always) {
            std::thread::yield_now();
        }
        destroy(t.id());
        swap.join().expect("no panic")
    });
    assert!(report.committed(), "{report:?}");
    let drained = report.transfers[0].drained.as_ref().expect("it was lazy");
    assert_eq!(drained.left, ITEMS, "{report:?}");
    assert!(drained.why.contains("destroyed"), "{report:?}");
}

/// The call that needs the item is told, and the next one gets it.
#[test]
fn a_fault_of_the_old_implementation_under_a_call_is_told_to_the_call() {
    for fault in [Fault::Error, Fault::Panic] {
        let (t, faults) = table("call", "lazy", ITEMS);
        let drain = DrainOptions { deadline: Duration::ZERO, ..patient().drain };
        let options = SwapOptions { drain, ..patient() };
        let report = swap_named(t.id(), "lazy", 1, &options);
        let drained =
            report.transfers.into_iter().next().and_then(|t| t.drained).expect("it was lazy");
        assert_eq!((drained.left, drained.by_drain), (ITEMS, 0));
        faults.arm(Step::Fetch, fault);
        let error = t.get(7).expect_err("the source fails");
        assert!(error.0.contains("Fetch"), "{error}");
        assert!(faults.fired());
        faults.arm(Step::Fetch, fault);
        assert!(t.insert(7, 1).is_err(), "what cannot be settled is not overwritten");
        check(t, ITEMS);
        destroy(t.id());
    }
}
