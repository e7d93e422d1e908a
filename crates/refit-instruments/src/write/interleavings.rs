//! A property test: every interleaving of writers, a drainer, dumps, suspension and crashes leaves
//! a trace of which every prefix can be read.

use proptest::prelude::*;
use std::time::Duration;

use super::drain::Drain;
use super::output::{Output, Rotation};
use crate::block::{End, Head};
use crate::record::{Phase, What};
use crate::session::{Geometry, Session};

#[expect(dead_code, reason = "the other tests use the rest of it")]
#[path = "../../tests/write/trace.rs"]
mod trace;
use trace::Trace;

/// A step of an interleaving.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A writer writes a record on a processor.
    Write(usize),
    /// A writer reserves a record and is killed.
    Crash(usize),
    /// The drainer reads up to the given number of records.
    Drain(usize, u64),
    /// The flight recorder drops all but the given number of records.
    Forget(usize, u64),
    /// The rings are closed, written and opened.
    Dump,
    /// All instruments are suspended or resumed.
    Suspend(bool),
}

const PROCESSORS: usize = 2;

fn step() -> impl Strategy<Value = Step> {
    let processor = 0..PROCESSORS;
    prop_oneof![
        20 => processor.clone().prop_map(Step::Write),
        2 => processor.clone().prop_map(Step::Crash),
        4 => (processor.clone(), 1..50_u64).prop_map(|(p, many)| Step::Drain(p, many)),
        1 => (processor, 0..64_u64).prop_map(|(p, many)| Step::Forget(p, many)),
        1 => Just(Step::Dump),
        1 => any::<bool>().prop_map(Step::Suspend),
    ]
}

/// The number of records by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    written: u64,
    lost_full: u64,
    crashed: u64,
}

/// The session of all cases, since sessions are never freed.
fn session() -> &'static Session {
    static SESSION: std::sync::OnceLock<&Session> = std::sync::OnceLock::new();
    SESSION.get_or_init(|| {
        let geometry = Geometry { processors: PROCESSORS, records: 64, definitions: 4 };
        Session::create(geometry).expect("there is memory")
    })
}

fn play(steps: &[Step], output: &mut Output) -> (Count, End) {
    let session = session();
    let area = session.area();
    let mut drains: Vec<Drain> =
        (0..PROCESSORS).map(|p| Drain::new(area, p).with_timeout(Duration::ZERO)).collect();
    let (mut count, mut suspended) = (Count::default(), false);
    let mut clock = 0;
    for step in steps {
        clock += 1;
        match *step {
            Step::Write(_) if suspended => (),
            Step::Write(p) => {
                let ring = &area.rings()[p];
                let head = u64::from(What::new(1, Phase::Point).word()) | 1 << 32;
                match ring.write(|| clock, head, [clock, !clock]) {
                    Ok(()) => count.written += 1,
                    Err(_) => {
                        ring.lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        count.lost_full += 1;
                    }
                }
            }
            Step::Crash(p) => {
                count.crashed += u64::from(area.rings()[p].reserve(1, || clock).is_ok());
            }
            Step::Drain(p, many) => drop(drains[p].write(many, area, output)),
            Step::Forget(p, many) => drains[p].forget(many, area),
            Step::Dump => {
                drains.iter().for_each(Drain::close);
                empty(&mut drains, output);
                drains.iter().for_each(Drain::open);
            }
            Step::Suspend(now) => suspended = now,
        }
    }
    empty(&mut drains, output);
    drains.iter_mut().for_each(|drain| drain.write_rest(output));
    let mut end = End::default();
    drains.iter().for_each(|drain| drain.add_to(&mut end));
    (count, end)
}

fn empty(drains: &mut [Drain], output: &mut Output) {
    for drain in drains {
        while drain.backlog() > 0 {
            drain.write(64, session().area(), output);
        }
    }
}

proptest! {
    #[test]
    fn every_begin_of_the_trace_can_be_read(
        steps in proptest::collection::vec(step(), 0..400),
        cut in 0.0..1.0_f64,
    ) {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().join("trace");
        let head = Head {
            host: String::new(),
            command: Vec::new(),
            processors: PROCESSORS as u32,
            clock: crate::block::ClockSource::Cycles,
            part: 0,
        };
        let mut output = Output::create(&path, head, Rotation::default()).expect("it is written");
        let (count, end) = play(&steps, &mut output);
        prop_assert_eq!(end.written + end.lost_old, count.written);
        prop_assert_eq!((end.lost_full, end.lost_torn), (count.lost_full, count.crashed));

        let whole = Trace::read(&path);
        whole.check();
        prop_assert_eq!(whole.records().len() as u64, end.written);
        prop_assert!(whole.records().iter().all(|record| record.payload[1] == !record.payload[0]));
        // The recorder may be killed at any point: a prefix contains a prefix of the records.
        let length = std::fs::metadata(&path).expect("it is there").len();
        let cut = 16 + ((length - 16) as f64 * cut) as u64;
        let file = std::fs::File::options().write(true).open(&path).expect("it is there");
        file.set_len(cut).expect("it can be cut");
        let begin = Trace::read(&path);
        begin.check();
        prop_assert_eq!(&begin.blocks[..], &whole.blocks[..begin.blocks.len()]);
    }
}
