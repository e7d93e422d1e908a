//! A swap on probation: the new implementation has to meet a condition for a while, or is swapped
//! back.
//!
//! A meter is attached to the object before the swap, and another one after it: they measure the
//! same calls in the same way. The old implementation remains available by its name. Swapping back
//! to it is a swap like any other, so changes since the first swap are transferred back with the
//! state. Once the probation is over, no meter is attached, and calls cost nothing extra.

use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_change::{ChangeId, End, Report};
use tracing::debug;

use crate::condition::{Condition, Measured};
use crate::id::ObjectId;
use crate::object::object;
use crate::pace::sleep_until;
use crate::swap::swap_named;
use crate::swap_options::{Handover, REQUESTER_GONE, SwapOptions};
use crate::wrappers::Meter;
use crate::wrapping::{WrapError, attach, detach};

/// The terms of a probation.
#[derive(Clone, Debug)]
pub struct Probation {
    /// The time for which calls are measured before the swap.
    pub before: Duration,
    /// The time for which the condition has to hold after it.
    pub after: Duration,
    /// The condition. It is evaluated continuously once [`Self::enough`] calls have been made, and
    /// at the end.
    pub until: Condition,
    /// The number of calls below which nothing is judged before the end.
    pub enough: u64,
}

impl Probation {
    /// Creates a probation with one second of measurement before the swap, and early judgement from
    /// a thousand calls on.
    pub fn new(after: Duration, until: Condition) -> Self {
        Probation { before: Duration::from_secs(1), after, until, enough: 1_000 }
    }
}

/// The interval at which the condition is evaluated.
const LOOK: Duration = Duration::from_millis(20);

/// Swaps an object, and swaps it back if it does not meet the condition. Returns the report of the
/// swap; if it was swapped back, the outcome says so and why.
pub fn swap_on_probation(
    id: ObjectId,
    to: &str,
    change: ChangeId,
    options: &SwapOptions,
    probation: &Probation,
) -> Report {
    let from = object(id).map(|object| object.implementation).unwrap_or_default();
    let Ok(before) = measure(id, probation.before, options, &|_| true) else {
        // The object is gone, or has the maximum number of wrappers; the swap reports the former.
        return swap_named(id, to, change, options);
    };
    let report = swap_named(id, to, change, options);
    if !report.committed() {
        return report;
    }
    let early = |after: &Measured| {
        after.calls < probation.enough || probation.until.violation(&before, after).is_none()
    };
    let violation = match measure(id, probation.after, options, &early) {
        Ok(after) => probation.until.violation(&before, &after),
        Err(error) => Some(format!("it could not be measured: {error}")),
    };
    let violation = match violation {
        _ if options.cancelled() => Some(REQUESTER_GONE.to_owned()),
        violation => violation,
    };
    match violation {
        None => {
            debug!(change, "the probation is over, and the condition was met");
            report
        }
        Some(why) => {
            debug!(change, why, "swapped back, since it was on probation");
            back(id, &from, report, &why, options)
        }
    }
}

/// Measures calls for a while, or until `fine` returns false, or the requester goes away.
fn measure(
    id: ObjectId,
    time: Duration,
    options: &SwapOptions,
    fine: &dyn Fn(&Measured) -> bool,
) -> Result<Measured, WrapError> {
    let meter = Meter::new();
    let attached = attach(id, Arc::clone(&meter))?;
    let over = || options.cancelled() || !fine(&meter.measured());
    sleep_until(Instant::now().checked_add(time), LOOK, &over);
    let measured = meter.measured();
    // Detached with its object, or by another caller: it measures no more in either case.
    let _ = detach(id, attached);
    Ok(measured)
}

fn back(id: ObjectId, from: &str, swapped: Report, why: &str, options: &SwapOptions) -> Report {
    // The requester may be gone, but the object is swapped back nevertheless, however long that
    // takes.
    let options = SwapOptions {
        cancel: None,
        hook: None,
        retries: options.retries.max(10),
        // Only the old state was discarded; the state that has formed since is transferred back.
        handover: match options.handover {
            Handover::WithoutState => Handover::WithoutState,
            Handover::Transfer | Handover::EmptyState => Handover::Transfer,
        },
        ..options.clone()
    };
    let back = swap_named(id, from, swapped.change.id, &options);
    let end = match back.end {
        // A rehearsal commits nothing, so there is nothing to undo.
        End::Committed | End::Rehearsed => End::RolledBack(format!("on probation: {why}")),
        // The report must not claim a swap back that has failed.
        End::RolledBack(not) | End::Refused(not) => {
            let to = &swapped.change.to;
            End::RolledBack(format!("on probation: {why}; but {to} still serves: {not}"))
        }
    };
    Report {
        end,
        phases: swapped.phases.into_iter().chain(back.phases).collect(),
        forwarded: swapped.forwarded + back.forwarded,
        blocked: swapped.blocked + back.blocked,
        longest_block_ns: swapped.longest_block_ns.max(back.longest_block_ns),
        blockers: back.blockers,
        ..swapped
    }
}
