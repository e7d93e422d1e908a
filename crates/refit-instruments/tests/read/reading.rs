//! Tests of reading: records come in order, and damaged, truncated and missing files, and files
//! that are no traces, are reported.

use refit_instruments::block::{Head, Kind, VERSION};
use refit_instruments::read::{Ending, Error, Seen, Trace};
use refit_instruments::record::Phase::Point;

use super::builder::{Builder, head, record};

fn seen(trace: &Trace) -> Vec<Seen> {
    trace.records().map(|seen| seen.expect("it is there")).collect()
}

#[test]
fn records_of_all_processors_come_in_the_order_of_time() {
    let at = |time, thread| record(time, 1, Point, thread, [0; 2]);
    // The first buffer is slightly out of order, also from one block to the next; one record was
    // never completed.
    let trace = Builder::new()
        .records(0, &[at(10, 1), at(40, 1), at(30, 1), at(0, 1)])
        .records(1, &[at(5, 2), at(35, 2)])
        .records(0, &[at(38, 1), at(50, 1)])
        .end()
        .trace();
    let mut records = trace.records();
    let times: Vec<_> =
        records.by_ref().map(|s| s.map(|s| (s.record.time, s.processor)).expect("there")).collect();
    assert_eq!(times, [(5, 1), (10, 0), (30, 0), (35, 1), (38, 0), (40, 0), (50, 0)]);
    assert_eq!((records.torn(), records.late()), (1, 0));
    assert_eq!((trace.len(), trace.span()), (8, Some((5, 50))));
    assert_eq!(trace.ending(), Ending::Whole);
    assert!(trace.end().is_some());
}

#[test]
fn a_record_that_is_far_out_of_order_is_counted_and_not_lost() {
    let mut all: Vec<_> = (2..5000).map(|time| record(time, 1, Point, 1, [0; 2])).collect();
    all.push(record(1, 1, Point, 1, [0; 2]));
    let trace = Builder::new().records(0, &all).end().trace();
    let mut records = trace.records();
    assert_eq!(records.by_ref().count(), all.len());
    assert_eq!(records.late(), 1);
}

#[test]
fn parts_are_put_together_in_any_order_and_missing_ones_are_counted() {
    let part = |number: u32, records: &[_], sequence: u64| {
        let builder = Builder::bare().json(Kind::Head, &Head { part: number, ..head() });
        // Records of other parts are not lost; they are only missing from this one.
        builder.lose(0, |head| head.lost_full = sequence).records(0, records)
    };
    let at = |time| record(time, 1, Point, 1, [0; 2]);
    let first = Builder::new().records(0, &[at(1), at(2)]).file();
    let third = part(2, &[at(9)], 4).end().file();
    let trace = Trace::open(&[third.path(), first.path()]).expect("both are of one trace");
    assert_eq!(seen(&trace).iter().map(|seen| seen.record.time).collect::<Vec<_>>(), [1, 2, 9]);
    let twice = Trace::open(&[first.path(), first.path()]);
    assert!(matches!(twice, Err(Error::Mixed { .. })));
    let other =
        Builder::bare().json(Kind::Head, &Head { part: 1, host: "else".into(), ..head() }).file();
    assert!(matches!(Trace::open(&[first.path(), other.path()]), Err(Error::Mixed { .. })));
}

#[test]
fn losses_are_told_by_cause_and_place() {
    let at = |time| record(time, 1, Point, 1, [0; 2]);
    let builder = Builder::new()
        .records(0, &[at(1), at(2)])
        .lose(0, |head| (head.lost_full, head.lost_torn) = (7, 1))
        .records(0, &[at(10)]);
    for trace in [builder.trace(), builder.clone().end().trace()] {
        let losses = trace.losses();
        assert_eq!((losses.full, losses.torn, losses.missing, losses.sum()), (7, 1, 0, 8));
        let gap = trace.gaps()[0];
        assert_eq!((gap.processor, gap.begin, gap.end, gap.lost.sum()), (0, 2, 10, 8));
        assert_eq!(trace.gaps().len(), 1);
    }
}

#[test]
fn a_trace_whose_writer_was_killed_is_read_up_to_there() {
    let at = |time| record(time, 1, Point, 1, [0; 2]);
    let whole = Builder::new().records(0, &[at(1), at(2)]);
    let length = whole.bytes.len();
    let mut cut = whole.records(0, &[at(3)]);
    assert!(cut.trace().end().is_none());
    for end in length + 1..cut.bytes.len() {
        cut.bytes.truncate(end);
        let trace = cut.trace();
        cut = Builder::new().records(0, &[at(1), at(2)]).records(0, &[at(3)]);
        assert_eq!(trace.ending(), Ending::Cut { at: length as u64 });
        assert_eq!(seen(&trace).len(), 2);
    }
    let last = cut.bytes.len() - 9;
    cut.bytes[last] ^= 1;
    let trace = cut.trace();
    assert_eq!(trace.ending(), Ending::Damaged { at: length as u64 });
    assert_eq!(seen(&trace).len(), 2);
}

#[test]
fn what_is_no_trace_is_told_in_one_line() {
    let with = |bytes: &[u8]| Builder::of(bytes.to_vec()).open().expect_err("it is no trace");
    let mut newer = Builder::new().bytes;
    newer[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let bare = Builder::bare().bytes;
    let full = Builder::new().bytes;
    let headless = Builder::bare().records(0, &[]).bytes;
    let errors = [
        with(b""),
        with(b"\x7fELF and so on"),
        with(b"rf-tr"),
        with(&bare),
        with(&full[..30]),
        with(&newer),
        with(&headless),
        Trace::open(&["/nonexistent/trace"]).expect_err("not there"),
        Trace::open(&["/"]).expect_err("a directory"),
        Trace::open::<&str>(&[]).expect_err("none"),
    ];
    use Error::*;
    assert!(
        matches!(
            errors,
            [
                Empty(_),
                NoTrace(_),
                Truncated { .. },
                Truncated { .. },
                Truncated { .. },
                Newer { .. },
                NoTrace(_),
                NotThere(_),
                NoFile(_),
                Nothing
            ]
        ),
        "{errors:#?}"
    );
    for error in &errors {
        let text = error.to_string();
        assert!(
            text.contains("; ") && !text.contains('\n'),
            "says what to do, in one line: {text}"
        );
    }
}

#[test]
fn the_name_of_the_first_file_means_all_parts_and_no_older_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("water.trace");
    let part = |number: u32| Builder::bare().json(Kind::Head, &Head { part: number, ..head() });
    let write = |number: u32, builder: &Builder| {
        let name =
            if number == 0 { path.clone() } else { path.with_extension(format!("trace.{number}")) };
        std::fs::write(name, &builder.bytes).expect("room for it");
    };
    let at = |time| record(time, 1, Point, 1, [0; 2]);
    write(0, &part(0).records(0, &[at(1)]));
    write(1, &part(1).records(0, &[at(2)]));
    write(2, &part(2).records(0, &[at(3)]).end());
    // A remnant of a longer trace that was there before.
    write(3, &part(3).records(0, &[at(4)]));
    // Has the name of a part, but is none.
    write(10, &Builder::of(b"notes".to_vec()));
    let trace = Trace::open(&[&path]).expect("it is a trace");
    let times: Vec<_> = seen(&trace).iter().map(|seen| seen.record.time).collect();
    assert_eq!((times, trace.files().count()), (vec![1, 2, 3], 3));
    // A flight recorder removes the oldest part.
    std::fs::remove_file(&path).expect("it was there");
    let trace = Trace::open(&[&path]).expect("the rest is a trace");
    assert_eq!(seen(&trace).len(), 2);
    std::fs::remove_file(path.with_extension("trace.1")).expect("it was there");
    assert_eq!(Trace::open(&[path.with_extension("trace.2")]).expect("one part").len(), 1);
}
