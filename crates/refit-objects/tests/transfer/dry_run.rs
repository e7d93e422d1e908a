//! A dry run measures and changes nothing.

use refit_objects::change::{End, Phase};
use refit_objects::{SwapOptions, destroy, object, swap_named};

use crate::table::*;

#[test]
fn a_dry_run_shows_lists_choice_and_sizes_and_changes_nothing() {
    for from in NAMES {
        for to in NAMES {
            let (t, _) = table("dry", from, 100);
            let options = SwapOptions { dry_run: true, ..patient() };
            let report = swap_named(t.id(), to, 1, &options);
            assert_eq!(report.end, End::Rehearsed, "{report:?}");
            assert!(report.phases.iter().any(|p| p.phase == Phase::Transfer && p.ns > 0));
            assert!(report.phases.iter().any(|p| p.phase == Phase::RollBack));
            let transfer = report.transfers.into_iter().next().expect("state went");
            assert!(transfer.export_ns > 0 && transfer.import_ns > 0);
            assert_eq!((transfer.items, transfer.drained), (Some(100), None));
            let negotiation = transfer.negotiation.expect("a dry run says why");
            assert_eq!(negotiation.chosen.as_ref(), transfer.route.first());
            assert!(!negotiation.from.is_empty() && !negotiation.why.is_empty());
            assert_eq!(object(t.id()).expect("it lives").implementation, from);
            check(t, 100);
            assert!(swap(t, to).committed());
            check(t, 100);
            destroy(t.id());
        }
    }
}

#[test]
fn a_dry_run_of_what_would_fail_says_so() {
    let (t, faults) = table("dry fault", "copying", 100);
    let options = SwapOptions { dry_run: true, ..patient() };
    faults.arm(Step::Import, Fault::Half);
    let report = swap_named(t.id(), "copying", 1, &options);
    let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
    assert!(why.contains("exported 100 items, the new one holds 50"), "{why}");
    check(t, 100);
    destroy(t.id());
}
