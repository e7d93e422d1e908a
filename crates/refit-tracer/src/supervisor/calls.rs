//! Tests that each call that a stop can interrupt or cut short returns what it returns without the
//! stop: the rows of [`refit_sys::restart`]'s table, run by the program with which `refit-splice`
//! tests splicing.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::resume::Resume;
use crate::supervisor::Supervisor;

#[path = "../../../refit-splice/tests/splicing/caller.rs"]
mod caller;

use caller::{Caller, NEVER, Row, STOPS, STOPS_AT_ITS_END};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../refit-splice/tests/splicing/calls.c");

fn program() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, std::path::PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls");
        let mut compile = Command::new("cc");
        let built = compile.args(["-O2", "-pthread", "-o"]).arg(&path).arg(SOURCE).status();
        assert!(built.expect("a compiler").success());
        (folder, path)
    });
    path
}

/// Waits until the call of a program blocks.
fn until_it_waits(caller: &Caller) {
    let begun = Instant::now();
    while !caller.waits() {
        assert!(begun.elapsed() < NEVER, "it does not wait");
        thread::yield_now();
    }
}

fn stop(supervisor: &Arc<Supervisor>, process: u32) {
    // It may have ended.
    let _ = supervisor.order(process, Duration::from_secs(20), |_, _| ((), Resume::Continue));
}

/// Returns what the program reports for a row, or `None` if this host lacks what the row needs.
fn reported(row: &Row, followed: bool) -> Option<String> {
    let mut caller = Caller::of(program(), row)?;
    let (process, supervisor) = (caller.id(), Arc::new(Supervisor::default()));
    let follows = followed.then(|| {
        let (ready, followed) = mpsc::channel();
        let supervisor = Arc::clone(&supervisor);
        let follows = thread::spawn(move || {
            supervisor.follow(process, || ready.send(()).map_err(std::io::Error::other))
        });
        // It may have ended, by its time limit.
        let _ = followed.recv();
        follows
    });
    if row.waits() && !row.by_time {
        for _ in 0..if followed { STOPS } else { 0 } {
            until_it_waits(&caller);
            stop(&supervisor, process);
        }
        until_it_waits(&caller);
    }
    caller.go();
    let mut line = None;
    for _ in 0..if followed { STOPS_AT_ITS_END } else { 0 } {
        line = caller.lines.recv_timeout(Duration::from_millis(1)).ok();
        if line.is_some() {
            break;
        }
        stop(&supervisor, process);
    }
    let line = line.or_else(|| caller.lines.recv_timeout(NEVER).ok());
    let line = line.unwrap_or_else(|| format!("{}: does not end", row.name));
    caller.kill();
    if let Some(follows) = follows {
        // A process that has ended before cannot be followed. To wait for the child before this
        // join would consume the stops that the event loop waits for.
        let _ = follows.join().expect("no panic");
    }
    Some(line)
}

#[test]
fn every_row_of_the_table_returns_what_it_returns_where_nobody_stops() {
    let mut differ = Vec::new();
    for row in Row::all(program()) {
        let Some(undisturbed) = reported(&row, false) else { continue };
        let stopped = reported(&row, true).expect("this host has it");
        if stopped != undisturbed {
            differ.push(format!("{stopped}; undisturbed {undisturbed}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
