//! Tests of one process in the sessions of several recorders: each has all records of its time.

use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Returns the sum of all counters of a session.
fn total(session: &Session) -> u64 {
    session.instruments().into_iter().map(|one| one.count).sum()
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

/// Lets two threads begin a round at the same time, closer than those that a lock wakes.
#[derive(Default)]
struct Start(AtomicUsize);

impl Start {
    /// Waits until both threads have called this for the same round; rounds begin at 1.
    fn wait(&self, round: usize) {
        self.0.fetch_add(1, Ordering::AcqRel);
        let mut turns = 0;
        while self.0.load(Ordering::Acquire) < 2 * round {
            turns += 1;
            // There may be one processor only.
            if turns % 10_000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

/// Returns counters that are used for the first time by a test.
fn unused(many: usize) -> Vec<&'static Counter> {
    let name = |number| -> &'static str { format!("unused {number}").leak() };
    (0..many).map(|number| &*Box::leak(Box::new(Counter::new("several", name(number))))).collect()
}

#[test]
fn a_first_use_by_two_threads_at_once_loses_nothing() {
    let turn = Turn::begin(1 << 16);
    let counters = unused(500);
    let start = Start::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for (round, counter) in counters.iter().enumerate() {
                    start.wait(round + 1);
                    counter.add(1);
                }
            });
        }
    });
    // A thread that meets the other one within the table may have made an entry of its own.
    assert_eq!(total(turn.session), 2 * counters.len() as u64);
}

#[test]
fn an_instrument_whose_sessions_change_at_its_first_use_has_the_new_ones() {
    let turn = Turn::begin(1 << 16);
    let first = turn.session;
    let second = Session::create(Geometry::of_host().with_ring_bytes(1 << 16)).expect("memory");
    let start = Start::default();
    let counters = unused(500);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (round, counter) in counters.iter().enumerate() {
                start.wait(2 * round + 1);
                counter.register();
                start.wait(2 * round + 2);
            }
        });
        for (round, counter) in counters.iter().enumerate() {
            let next = [second, first][round % 2];
            start.wait(2 * round + 1);
            instrument::attach(next);
            start.wait(2 * round + 2);
            let before = total(next);
            counter.add(1);
            assert_eq!(total(next), before + 1, "in round {round}");
        }
    });
}
