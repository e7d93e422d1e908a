//! Tests of full disks and of rotating files.

use std::path::Path;

use refit_instruments::instrument::{self, Event, Manager};
use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{Mode, Options, Recorder, Rotation, part_path};

use super::Turn;
use super::helper::{self, Helper, until};
use super::trace::Trace;

static STEP: Event = Event::new("disk", "fill");
const MANY: u64 = 10_000;

fn steps(first: u64) {
    (first..first + MANY).for_each(|step| STEP.record([step, 0]));
}

/// Limits the size of files that this process writes, in bytes.
fn limit(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel reads the struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

/// Role: its file cannot grow for a while.
pub(crate) fn fill() {
    // SAFETY: ignoring a signal runs nothing. A write beyond the limit then fails with EFBIG, as on
    // a full disk.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let session = Session::create(Geometry::of_host().with_ring_bytes(1 << 20)).expect("memory");
    instrument::attach(session);
    let path = std::env::var_os("TRACE").expect("it is told where");
    let recorder = Recorder::start(session, Path::new(&path), Options::default()).expect("starts");
    let drained = |many| {
        let manager = Manager::new(session, "disk");
        until("the recorder has taken all", || manager.volume() >= many);
    };
    steps(0);
    drained(MANY);
    // The last block may be in progress: it is truncated, or it fits.
    limit(std::fs::metadata(&path).expect("it is there").len());
    steps(MANY);
    drained(2 * MANY);
    steps(2 * MANY);
    drained(3 * MANY);
    limit(libc::RLIM_INFINITY);
    steps(3 * MANY);
    let summary = recorder.stop();
    assert!(summary.trouble.is_some());
    let end = summary.end;
    assert!(end.lost_unwritten > 0 && end.written >= MANY, "{end:?}");
    assert_eq!(end.written + end.lost_unwritten + end.lost_full, 4 * MANY);
    let trace = Trace::read(Path::new(&path));
    trace.check();
    assert_eq!(trace.end, Some(end));
    helper::say("checked");
}

#[test]
fn recording_goes_on_when_the_disk_has_been_full() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let mut filler = Helper::start("disk", &[("TRACE", &path)]);
    assert_eq!(filler.hear(), "checked");
}

#[test]
fn every_file_of_a_trace_can_be_read_by_itself() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(4096 * 32);
    let rotation = Rotation { bytes: 1 << 18, keep: 3 };
    let options = Options { mode: Mode::Dump, rotation, ..Options::default() };
    let recorder = Recorder::start(turn.session, &path, options).expect("it starts");
    (0..8).for_each(|round| steps(round * MANY));
    let summary = recorder.stop();
    assert_eq!(summary.end.written, 8 * MANY);
    assert!(summary.parts >= 8, "{summary:?}");
    let there = (0..summary.parts).filter(|part| part_path(&path, *part).exists());
    let there: Vec<u32> = there.collect();
    assert_eq!(there, (summary.parts - 3..summary.parts).collect::<Vec<_>>());
    for part in there {
        let trace = Trace::read(&part_path(&path, part));
        assert_eq!(trace.part, part);
        let id = trace.id("fill");
        assert!(trace.records().iter().all(|record| record.what.id() == id));
        assert!(trace.clocks > 0);
    }
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_begins() {
    let turn = Turn::begin(64 * 32);
    let path = Path::new("/nowhere/trace");
    let refused = Recorder::start(turn.session, path, Options::default());
    let said = refused.expect_err("there is no such directory").to_string();
    assert!(said.contains("/nowhere/trace") && said.contains("No such file"), "{said}");
}
