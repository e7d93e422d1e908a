//! Restores sites before the stop in which their area is taken out.
//!
//! A stop takes some microseconds for each page that changes. The program can run with any prefix
//! of the changes ([`patches`](crate::patches)), so those of many pages are undone from the last
//! one on in several stops that are short. Copies and long jumps stay until then, and threads in
//! them.

use std::sync::Arc;

use tracing::debug;

use super::found::Remains;
use super::removed::Removed;
use super::take_out::{Part, clear_hops, returns};
use crate::patches::{Now, PAGES_AT_ONCE, Places};
use crate::process::searched::Searched;
use crate::process::{Program, Refusal, STOP_TIMEOUT, Still, contexts};
use crate::record::Record;
use crate::why::Why;

/// Restores the sites of these areas of a program, but for those that one stop can restore.
///
/// # Errors
/// [`Why`]: the program cannot be stopped or changed; the sites that are left can still be
/// restored.
pub(super) fn restore_ahead<'r>(
    program: &Program,
    searched: Option<&Arc<Searched>>,
    areas: impl Iterator<Item = &'r Remains>,
) -> Result<Removed, Why> {
    let mut all = Removed::default();
    if contexts::switches(program) && searched.is_none() {
        // Each stop would take as long as the search.
        return Ok(all);
    }
    for one in areas.filter(|one| one.head.has_code()) {
        let records = installed(program, one)?;
        let mut parts = Places::new(records.iter().copied()).divide(PAGES_AT_ONCE);
        parts.pop();
        for places in parts {
            let work = |still: &mut Still<'_>| restore(still, places, &records);
            let (sites, stood) = contexts::stand_still(program, STOP_TIMEOUT, searched, work)?;
            debug!(process = program.id(), sites, ?stood, "sites restored before the last stop");
            all = all.and(Removed { sites, stood, ..Removed::default() });
        }
    }
    Ok(all)
}

/// Returns the changes of an area that are there, but for those that unwinders need, from the last
/// one on.
fn installed<'r>(program: &Program, one: &'r Remains) -> Result<Vec<&'r Record>, Refusal> {
    let mut there = Vec::new();
    let records = one.records_of(Part::Others);
    Places::new(records.iter().rev().copied()).decide(program, |record, now| {
        if now == Now::New {
            there.push(record);
        }
        Ok::<_, Refusal>(None)
    })?;
    Ok(there)
}

/// Restores these places while the program is stopped; returns the number of sites. Those that
/// another tool has changed stay.
fn restore(still: &mut Still<'_>, places: Places<'_>, records: &[&Record]) -> Result<usize, Why> {
    let mut sites = 0;
    let change = places.decide(still.program(), |record, now| {
        sites += usize::from(now == Now::New && record.is_place());
        Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
    })?;
    let returns = returns(still)?;
    clear_hops(records, still, &returns)?;
    change.make(still.program())?;
    Ok(sites)
}
