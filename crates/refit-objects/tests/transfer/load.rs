//! Swaps between all ways of transfer while the object is used.

use std::sync::atomic::{AtomicU64, Ordering};

use refit_objects::destroy;

use crate::table::*;

#[test]
fn every_way_keeps_every_item_while_calls_go_on() {
    const ITEMS: u64 = 600;
    let (t, faults) = table("ways", "copying", ITEMS);
    let stop = Stop::default();
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (stop, calls) = (&stop, &calls);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.said() {
                    for key in (thread..ITEMS).step_by(2) {
                        assert_eq!(t.get(key), Ok(Some(3 * key + n)));
                        assert_eq!(t.insert(key, 3 * key + n + 1), Ok(Some(3 * key + n)));
                    }
                    n += 1;
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                for key in (thread..ITEMS).step_by(2) {
                    assert_eq!(t.insert(key, 3 * key), Ok(Some(3 * key + n)));
                }
            });
        }
        let stopping = stop.when_dropped();
        for round in 0..120 {
            // Some of them fail on the way, which no caller may notice.
            let fault = round % 5 == 4;
            if fault {
                faults.arm([Step::Export, Step::Import][round % 2], Fault::Panic);
            }
            let report = swap(t, NAMES[round * 7 % 4]);
            assert_eq!(report.committed(), !fault, "{report:?}");
        }
        drop(stopping);
    });
    assert!(calls.load(Ordering::Relaxed) > 0);
    check(t, ITEMS);
    destroy(t.id());
}

/// With enough to do, several threads move the parts; what they bring is the same.
#[test]
fn parts_go_in_parallel_when_there_is_enough_to_do() {
    const ITEMS: u64 = 40_000;
    let (t, faults) = table("parallel", "partitioned", ITEMS);
    for _ in 0..3 {
        let report = swap(t, "partitioned");
        assert!(report.committed(), "{report:?}");
        let transfer = report.transfers.into_iter().next().expect("it went");
        assert_eq!((transfer.parts, transfer.items), (PARTS as u32, Some(ITEMS)));
        assert_eq!(transfer.bytes, Some(16 * ITEMS));
    }
    for fault in [Fault::Error, Fault::Panic, Fault::Half] {
        faults.arm(Step::Import, fault);
        assert!(swap(t, "partitioned").rolled_back());
    }
    check(t, ITEMS);
    destroy(t.id());
}
