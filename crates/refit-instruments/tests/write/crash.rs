//! Tests of killed writers and recorders: what was written stays readable, and what is lost is
//! counted.

use std::path::Path;
use std::sync::atomic::Ordering;

use refit_instruments::instrument::{Event, Instrument, Manager};
use refit_instruments::session::layout::{self, ring};
use refit_instruments::session::{self, Geometry, Session};
use refit_instruments::write::{Options, Recorder};
use refit_sys::words::Words;

use super::Turn;
use super::helper::{self, Helper, until};
use super::trace::Trace;

static WORK: Event = Event::new("crash", "work");

/// Writes whole records only: both words belong together.
fn work(number: u64) {
    WORK.record([number, !number]);
}

fn all_are_whole(trace: &Trace) {
    let id = trace.id("work");
    let records = trace.records();
    let work: Vec<_> = records.iter().filter(|record| record.what.id() == id).collect();
    assert!(!work.is_empty());
    assert!(work.iter().all(|r| r.payload[1] == !r.payload[0] && r.thread != 0));
}

/// Role: records until it is killed.
pub(crate) fn writer() {
    session::attach_environment().expect("the session is there").expect("it is named");
    std::thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || (first..u64::MAX).step_by(2).for_each(work));
        }
    });
}

#[test]
fn writers_killed_within_a_record_leave_the_others_whole() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(1 << 20);
    WORK.register();
    let recorder = Recorder::start(turn.session, &path, Options::default()).expect("it starts");
    let name = turn.session.path();
    let volume = || Manager::new(turn.session, "crash").volume();
    for _ in 0..5 {
        let before = volume();
        let mut writer = Helper::start("writer", &[(session::VARIABLE, &name)]);
        until("the writer records", || volume() > before + 1000);
        writer.kill();
    }
    let summary = recorder.stop();
    let trace = Trace::read(&path);
    trace.check();
    all_are_whole(&trace);
    assert_eq!(trace.end, Some(summary.end));
}

#[test]
fn a_record_that_was_begun_by_the_dead_is_given_up_and_counted() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(1 << 20);
    let recorder = Recorder::start(turn.session, &path, Options::default()).expect("it starts");
    // Acts as a writer that is killed right after it has reserved a slot, on every processor, since
    // this thread may be moved.
    let geometry = turn.session.geometry();
    let file = std::fs::File::options().read(true).write(true).open(turn.session.path());
    let words = Words::open(file.expect("it is there")).expect("it can be mapped").get();
    for processor in 0..geometry.processors {
        let head = geometry.rings_at() + processor * layout::RING;
        words[head + ring::RESERVED].fetch_add(1, Ordering::AcqRel);
    }
    (0..1000).for_each(work);
    let end = recorder.stop().end;
    assert_eq!(end.lost_torn, geometry.processors as u64);
    assert_eq!(end.written, 1000);
    let trace = Trace::read(&path);
    trace.check();
    all_are_whole(&trace);
}

/// Role: records itself until it is killed.
pub(crate) fn recorder() {
    let session = Session::create(Geometry::of_host().with_ring_bytes(1 << 16)).expect("memory");
    refit_instruments::instrument::attach(session);
    let path = std::env::var_os("TRACE").expect("it is told where");
    let recorder = Recorder::start(session, Path::new(&path), Options::default());
    let _recorder = recorder.expect("it can be written");
    helper::say("recording");
    (0..u64::MAX).for_each(work);
}

#[test]
fn a_recorder_killed_while_it_writes_leaves_a_readable_begin() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    for more in 1..=5_u64 {
        let mut recorder = Helper::start("recorder", &[("TRACE", &path)]);
        recorder.hear();
        let length = || std::fs::metadata(&path).map_or(0, |file| file.len());
        until("something is written", || length() > more << 20);
        recorder.kill();
        let _ = recorder.child.wait();
        let trace = Trace::read(&path);
        trace.check();
        all_are_whole(&trace);
        assert_eq!(trace.end, None);
    }
}
