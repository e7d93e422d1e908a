//! Swaps whose deadline passes.

use refit_objects::change::Report;

/// Swaps until the report names a thread among the blockers. On a slow machine the deadline may
/// pass before the swap has begun, and then it names none.
pub(crate) fn until_named(thread: &str, swap: impl Fn() -> Report) -> Report {
    loop {
        let report = swap();
        assert!(report.late && report.rolled_back(), "{report:?}");
        if report.blockers.iter().any(|blocker| blocker.thread == thread) {
            return report;
        }
    }
}
