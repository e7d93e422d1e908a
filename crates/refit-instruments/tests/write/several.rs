//! Tests of one process in the sessions of several recorders: each has all records of its time.

use refit_instruments::instrument::{self, Counter, Event, Instrument};
use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{Options, Recorder};

use crate::Turn;

static EVENT: Event = Event::new("several", "happens");
static COUNTER: Counter = Counter::new("several", "counts");

/// Returns the number of records of an instrument of a session, as far as its recorder has seen
/// them.
fn count(session: &Session, name: &str) -> u64 {
    let known = session.instruments().into_iter().find(|one| one.definition.name == name);
    known.map_or(0, |one| one.count)
}

/// Suspends both instruments, or resumes them.
fn suspend(session: &Session, suspended: bool) {
    for known in session.instruments() {
        session.suspend(known.definition.id, suspended);
    }
}

fn happens() {
    EVENT.record([1, 2]);
    COUNTER.add(1);
}

#[test]
fn each_session_has_what_happens_while_it_is_attached_and_suspends_for_itself() {
    let turn = Turn::begin(1 << 16);
    let first = turn.session;
    let second = Session::create(Geometry::of_host().with_ring_bytes(1 << 16)).expect("memory");
    let folder = tempfile::tempdir().expect("a folder");
    let recorders = [(first, "first"), (second, "second")].map(|(session, name)| {
        Recorder::start(session, &folder.path().join(name), Options::default()).expect("started")
    });
    let counts = || (count(first, "counts"), count(second, "counts"));
    happens();
    instrument::join(second);
    assert_eq!(instrument::sessions().len(), 2);
    happens();
    assert_eq!(counts(), (2, 1));
    suspend(first, true);
    happens();
    assert_eq!(counts(), (2, 2));
    assert!(EVENT.records(), "in one of them");
    suspend(second, true);
    happens();
    assert_eq!(counts(), (2, 2));
    assert!(!EVENT.records());
    [first, second].into_iter().for_each(|one| suspend(one, false));
    assert_eq!(COUNTER.totals()[0], 2, "of the first");
    instrument::leave(first);
    happens();
    assert_eq!(counts(), (2, 3));
    assert_eq!(COUNTER.totals()[0], 3, "of the one that is left");
    for recorder in recorders {
        assert_eq!(recorder.stop().end.lost_full, 0);
    }
    assert_eq!((count(first, "happens"), count(second, "happens")), (2, 3));
}
