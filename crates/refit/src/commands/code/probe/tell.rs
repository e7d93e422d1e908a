//! Messages about a watched program: refusals, remains, failures.

use refit_probe::watch::Prepared;
use refit_splice::remains::Removed;

use crate::format;

/// The number of refused places that are reported one by one.
const TOLD: usize = 5;

/// Says which places are not watched, and why.
pub(super) fn tell_refused(prepared: &Prepared<'_>) {
    for (place, why) in prepared.refused.iter().take(TOLD) {
        say!("refit: not watched: {place}: {why}");
    }
    if let Some(more) = prepared.refused.len().checked_sub(TOLD).filter(|more| *more > 0) {
        say!("refit: not watched: {more} more");
    }
}

/// Says what stays in a program after all sites were taken out.
pub(crate) fn tell_kept(id: u32, removed: &Removed) {
    if removed.foreign > 0 {
        say!(
            "refit: {} of process {id} not removed: another tool, or the program itself, has changed the code",
            format::counted(removed.foreign as u64, "site"),
        );
    }
    if let Some(because) = removed.because {
        say!(
            "refit: {} of process {id} left mapped, which no code enters: {because}; try again with `refit repair -p {id}`",
            format::counted(removed.kept as u64, "patch area"),
        );
    }
}
