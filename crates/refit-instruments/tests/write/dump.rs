//! Tests of dump mode: writers wait and lose nothing, and never wait for a recorder that no longer
//! exists.

use std::path::Path;

use refit_instruments::instrument::{self, Event};
use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{Mode, Options, Recorder};

use super::Turn;
use super::helper::{self, Helper};
use super::trace::Trace;

static STEP: Event = Event::new("dump", "step");

fn options(mode: Mode) -> Options {
    Options { mode, ..Options::default() }
}

fn four_write(each: u64) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (0..each).for_each(|step| STEP.record([thread, step])));
        }
    });
}

#[test]
fn nothing_is_lost_in_rings_that_are_far_too_small() {
    const EACH: u64 = 20_000;
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(256 * 32);
    let recorder = Recorder::start(turn.session, &path, options(Mode::Dump)).expect("it starts");
    four_write(EACH);
    let summary = recorder.stop();
    assert_eq!((summary.end.written, summary.end.lost_full), (4 * EACH, 0));
    assert!(summary.dumps >= 4 * EACH / 256 / turn.session.geometry().processors as u64);
    let trace = Trace::read(&path);
    trace.check();
    assert_eq!(trace.dumps.len() as u64, summary.dumps);
    assert!(trace.dumps.iter().all(|dump| dump.begin <= dump.end));
    assert!(trace.dumps.windows(2).all(|two| two[0].number + 1 == two[1].number));
    // A dump begins when a writer has to wait, which none has since the previous one.
    assert!(trace.dumps.windows(2).all(|two| two[0].begin < two[1].begin));
    // No thread records between the beginning and the end of the part of a dump in which the rings
    // were closed. The part therefore has all records of each thread, in order.
    for thread in 0..4 {
        let mut steps: Vec<(u64, u64)> = trace
            .records()
            .into_iter()
            .filter(|record| record.payload[0] == thread)
            .map(|record| (record.time, record.payload[1]))
            .collect();
        steps.sort_unstable();
        assert!(steps.into_iter().map(|(_, step)| step).eq(0..EACH));
    }
}

/// Role: records a session in dump mode until it is killed.
pub(crate) fn dumper() {
    let session = Session::create(Geometry::of_host().with_ring_bytes(256 * 32)).expect("memory");
    let path = std::env::var_os("TRACE").expect("it is told where");
    let recorder = Recorder::start(session, Path::new(&path), options(Mode::Dump));
    let _recorder = recorder.expect("it can be written");
    helper::say(session.path().display());
    helper::pause();
}

#[test]
fn who_waits_for_a_recorder_that_is_killed_goes_on() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let mut dumper = Helper::start("dumper", &[("TRACE", &path)]);
    let name = dumper.hear();
    let _turn = Turn::begin(64 * 32);
    let session = Session::open(Path::new(&name)).expect("it is there");
    instrument::attach(session);
    four_write(10_000);
    assert!(!session.ended());
    // The recorder stays a zombie: its process number is in use, but it is dead.
    dumper.kill();
    four_write(10_000);
    assert!(session.ended());
    let trace = Trace::read(&path);
    trace.check();
    assert!(!trace.dumps.is_empty());
}

#[test]
fn a_flight_recorder_keeps_the_newest() {
    const MANY: u64 = 100_000;
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(4096 * 32);
    let recorder = Recorder::start(turn.session, &path, options(Mode::Flight)).expect("it starts");
    // On one processor, and no faster than the recorder can discard: it leaves three quarters of
    // the ring.
    let manager = instrument::Manager::new(turn.session, "dump");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            helper::bind_here();
            for step in 0..MANY {
                STEP.record([0, step]);
                // Records that count as discarded are given back a moment later, so two rounds have
                // to fit into the quarter that is left; otherwise a record finds no slot, and is
                // waited for in vain.
                if step % 256 == 255 {
                    let forgotten = || manager.volume() + 3072 > step;
                    helper::until("old records are forgotten", forgotten);
                }
            }
        });
    });
    let end = recorder.stop().end;
    assert_eq!(end.written + end.lost_old + end.lost_full, MANY);
    assert_eq!(end.lost_full, 0);
    assert!(end.lost_old > 0);
    let trace = Trace::read(&path);
    trace.check();
    let newest = trace.records().iter().map(|record| record.payload[1]).max();
    assert_eq!(newest, Some(MANY - 1));
}
