//! A swap on probation: the new implementation has to keep to a condition for a while, or is swapped back.
//!
//! A meter is wrapped around the object before the swap, and another one after it: they measure the same calls in the
//! same way. Until the probation is over the old implementation is kept ready, by its name; going back is a swap like
//! any other, so what changed since goes back with it. Nothing is measured, and calls cost nothing, once it is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_change::{ChangeId, End, Report};

use crate::condition::{Condition, Measured};
use crate::object::{ObjectId, object};
use crate::pace::sleep_until;
use crate::swap::{Handover, REQUESTER_GONE, SwapOptions, swap_named};
use crate::wrappers::Meter;
use crate::wrapping::{WrapError, attach, detach};

/// How a new implementation has to prove itself.
#[derive(Clone, Debug)]
pub struct Probation {
    /// For how long calls are measured before the swap.
    pub before: Duration,
    /// For how long the condition has to hold after it.
    pub after: Duration,
    /// What has to hold. It is looked at all the time, as soon as [`Self::enough`] calls have come, and in the end.
    pub until: Condition,
    /// Calls without which nothing is judged before the end.
    pub enough: u64,
}

impl Probation {
    /// Measured for a second before; judged early from a thousand calls on.
    pub fn new(after: Duration, until: Condition) -> Self {
        Probation { before: Duration::from_secs(1), after, until, enough: 1_000 }
    }
}

/// How often it is looked at whether the condition holds.
const LOOK: Duration = Duration::from_millis(20);

/// Swaps an object, and back again if it does not keep to the condition. The report is that of the swap; if it was
/// swapped back, the end says so and why.
pub fn swap_on_probation(
    id: ObjectId,
    to: &str,
    change: ChangeId,
    options: &SwapOptions,
    probation: &Probation,
) -> Report {
    let from = object(id).map(|object| object.implementation).unwrap_or_default();
    let Ok(before) = measure(id, probation.before, options, &|_| true) else {
        // It is gone, or has as many wrappers as can be: the swap, or nobody, says so.
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
        None => report,
        Some(why) => back(id, &from, report, &why, options),
    }
}

/// Measures calls for a while, or until `fine` says no, or the requester goes away.
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
    // Gone with its object, or detached by somebody: it measures no more either way.
    let _ = detach(id, attached);
    Ok(measured)
}

fn back(id: ObjectId, from: &str, swapped: Report, why: &str, options: &SwapOptions) -> Report {
    // Who asked may be gone; the way back is gone all the same, and for as long as it takes.
    let options = SwapOptions {
        cancel: None,
        hook: None,
        retries: options.retries.max(10),
        // What was thrown away was the old state: what came after it goes back.
        handover: match options.handover {
            Handover::WithoutState => Handover::WithoutState,
            Handover::Transfer | Handover::EmptyState => Handover::Transfer,
        },
        ..options.clone()
    };
    let back = swap_named(id, from, swapped.change.id, &options);
    let end = match back.end {
        // A rehearsal commits nothing, so there is nothing to take back.
        End::Committed | End::Rehearsed => End::RolledBack(format!("on probation: {why}")),
        // It must not be said to be back when it is not.
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
