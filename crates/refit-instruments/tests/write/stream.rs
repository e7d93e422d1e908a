//! A program that records itself: what it wrote is in the trace.

use refit_instruments::definition::FieldKind;
use refit_instruments::instrument::{Counter, Event, Instrument, Timer};
use refit_instruments::record::Phase;
use refit_instruments::write::{Options, Recorder};

use super::Turn;
use super::trace::Trace;

static GET: Event = Event::new("kv", "Store::get").fields(&[("key", FieldKind::U64)]);
static MISSES: Counter = Counter::new("kv", "misses");
static FLUSH: Timer = Timer::new("kv", "flush");

#[test]
fn what_was_recorded_is_in_the_trace() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(1 << 20);
    let recorder =
        Recorder::start(turn.session, &path, Options::default()).expect("it can be written");
    for key in 1..=10_000 {
        GET.record([key, !key]);
    }
    {
        let _span = GET.span([7, 8]);
        MISSES.add(3);
        MISSES.add(4);
        let _running = FLUSH.start();
    }
    GET.suspend();
    GET.record([4711, 0]);
    GET.resume();
    let summary = recorder.stop();
    GET.record([4712, 0]);
    assert!(!GET.records());

    let trace = Trace::read(&path);
    trace.check();
    assert_eq!(summary.end.lost_full, 0);
    assert_eq!(trace.end, Some(summary.end));
    let id = trace.id("Store::get");
    let mut points: Vec<_> = trace.records().into_iter().filter(|r| r.what.id() == id).collect();
    points.sort_by_key(|record| record.time);
    let of = |phase| points.iter().filter(move |r| r.what.phase() == Some(phase));
    let keys: Vec<u64> = of(Phase::Point).map(|record| record.payload[0]).collect();
    assert_eq!(keys, (1..=10_000).collect::<Vec<_>>());
    assert!(points.iter().all(|r| r.thread == refit_sys::thread::id()));
    let span = of(Phase::Begin).chain(of(Phase::End)).map(|r| r.payload).collect::<Vec<_>>();
    assert_eq!(span, [[7, 8], [7, 8]]);
    let misses = trace.totals.iter().find(|t| t.name == "misses").expect("it was counted");
    assert_eq!((misses.count, misses.sum), (2, 7));
    assert_eq!(trace.totals.iter().find(|t| t.name == "flush").map(|t| t.count), Some(1));
    assert!(trace.clocks >= 2);
}

#[test]
fn what_finds_no_place_is_counted_and_nothing_else_is_missing() {
    const MANY: u64 = 200_000;
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(64 * 32);
    let recorder =
        Recorder::start(turn.session, &path, Options::default()).expect("it can be written");
    (0..MANY).for_each(|key| GET.record([key, 0]));
    let end = recorder.stop().end;
    let trace = Trace::read(&path);
    trace.check();
    assert_eq!(end.written + end.lost_full, MANY);
    assert_eq!(trace.records().len() as u64, end.written);
}
