//! Each call that a stop can end or cut short returns what it returns without a stop: the rows of
//! [`restart`]'s table.

use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use refit_splice::process::{Program, Refusal};
use refit_sys::restart;

use super::caller::{Caller, NEVER, Row, STOPS, STOPS_AT_ITS_END};
use super::victim::{Built, build, until};

/// Calls of the table that wait for no event, or for hardware only.
const WAIT_FOR_NOBODY: [i64; 2] = [libc::SYS_pwrite64, libc::SYS_copy_file_range];

fn program() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "splicing/calls.c", &["-pthread"])).path()
}

/// Stops the process once; returns whether it still runs.
fn stop(caller: &Caller) -> bool {
    let Ok(program) = Program::open(caller.id()) else { return false };
    let stood = program.stand_still(Duration::from_secs(60), |_| Ok::<_, Refusal>(()));
    match stood {
        Ok(_) => true,
        Err(refusal) => {
            // It may end meanwhile, which the kernel reports in several ways; no other error is
            // accepted.
            let begun = Instant::now();
            while !program.ended() {
                assert!(begun.elapsed() < NEVER, "{refusal}");
                thread::yield_now();
            }
            false
        }
    }
}

/// Returns what the row prints, if this host has what it needs.
fn outcome(row: &Row, stops: bool) -> Option<String> {
    let mut caller = Caller::of(program(), row)?;
    if row.waits() {
        for _ in 0..if stops && !row.by_time { STOPS } else { 0 } {
            until(|| caller.waits());
            assert!(stop(&caller), "{}", row.name);
        }
        until(|| caller.waits());
    }
    caller.go();
    for _ in 0..if stops { STOPS_AT_ITS_END } else { 0 } {
        match caller.lines.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => return Some(line),
            Err(_) => drop(stop(&caller)),
        }
    }
    let end = caller.lines.recv_timeout(NEVER);
    Some(end.unwrap_or_else(|_| format!("{}: does not end", row.name)))
}

#[test]
fn every_row_of_the_table_is_told_as_where_nobody_stops() {
    let rows = Row::all(program());
    let tested = |number: u64| {
        let number = number.cast_signed();
        WAIT_FOR_NOBODY.contains(&number) || rows.iter().any(|row| row.number == number)
    };
    let missing: Vec<u64> = restart::rows().filter(|number| !tested(*number)).collect();
    assert!(missing.is_empty(), "calls of the table that are not tested: {missing:?}");
    let mut differ = Vec::new();
    for row in &rows {
        let Some(undisturbed) = outcome(row, false) else { continue };
        let stopped = outcome(row, true).expect("this host has it");
        if stopped != undisturbed {
            differ.push(format!("{stopped}; undisturbed {undisturbed}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
