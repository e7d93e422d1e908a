//! Intervals, their times with and without what measuring costs, context switches and waits.

use refit_instruments::analysis::{Compensation, Filter, Summary, Wait, delays, summarize};
use refit_instruments::block::Place;
use refit_instruments::definition::FieldKind::{U32, U64};
use refit_instruments::definition::Role;
use refit_instruments::read::Trace;
use refit_instruments::record::Phase::{Begin, End, Point};

use super::builder::{Builder, definition, record};

fn summary(trace: &Trace) -> Summary {
    summarize(trace, &Filter::default()).expect("the file is there")
}

/// An outer interval with a point, an inner interval and a dump in it.
fn nested() -> Builder {
    Builder::new()
        .definitions(&[
            definition(1, "Cache::read", Role::Plain, &[]),
            definition(2, "Disk::read", Role::Plain, &[]),
        ])
        .dump(5_000, 6_000)
        .records(
            0,
            &[
                record(1_000, 1, Begin, 7, [0; 2]),
                record(2_000, 3, Point, 7, [0; 2]),
                record(4_000, 2, Begin, 7, [0; 2]),
                record(4_500, 9, Point, 8, [0; 2]),
                record(8_000, 2, End, 7, [0; 2]),
                record(9_000, 1, End, 7, [0; 2]),
            ],
        )
}

#[test]
fn total_and_own_times_pay_for_their_own_records_and_dumps() {
    let trace = nested()
        .cost(Place::InVitro, 90.0, 4.0, 300.0)
        .cost(Place::InVivo, 100.0, 5.0, 0.0)
        .trace();
    let summary = summary(&trace);
    let row = |event| summary.rows.iter().find(|row| row.event == event).expect("it is there");
    let (outer, inner) = (&row(1).durations, &row(2).durations);
    assert_eq!((outer.total, outer.own, inner.total, inner.own), (8_000, 4_000, 4_000, 4_000));
    // Outer: its own record, the point, both of the inner; the dump is the inner's.
    assert_eq!(outer.corrected.time, 8_000.0 - 1_000.0 - 4.0 * 100.0);
    assert_eq!(inner.corrected.time, 4_000.0 - 1_000.0 - 100.0);
    assert_eq!(outer.own_corrected.time, 4_000.0 - 3.0 * 100.0);
    assert_eq!(
        outer.own_corrected.time + inner.corrected.time,
        outer.corrected.time,
        "nothing counts twice"
    );
    assert_eq!(row(3).points, 1);
    assert_eq!((summary.stray, summary.unended), (0, 0));
}

#[test]
fn the_error_comes_from_the_spread_and_from_how_well_two_ways_agree() {
    let both = [(Place::InVitro, 80.0, 300.0), (Place::InVivo, 100.0, 0.0)];
    let cost = |(place, ticks, cold)| refit_instruments::block::Cost {
        instrument: "event".into(),
        place,
        ticks,
        spread: 3.0,
        cold,
    };
    let costs = both.map(cost);
    let kind = refit_instruments::block::Kind::Costs;
    let trace = Builder::new().json(kind, &costs).trace();
    let corrected = Compensation::new(&trace).correct(10_000, 16, 2_000);
    assert_eq!((corrected.time, corrected.error), (6_400.0, 4.0 * 3.0 + 16.0 * 10.0));
    assert_eq!(corrected.share, 0.2);
    // Measured in a loop only: a cold one is how far it may be off.
    let trace = Builder::new().json(kind, &costs[..1]).trace();
    assert_eq!(Compensation::new(&trace).correct(10_000, 16, 0).error, 12.0 + 16.0 * 110.0);
    let trace = Builder::new().trace();
    assert!(!Compensation::new(&trace).is_known());
    assert_eq!(Compensation::new(&trace).correct(10_000, 16, 2_000).time, 8_000.0);
}

#[test]
fn ends_and_begins_that_have_no_partner_are_counted_and_hide_nothing() {
    let trace = Builder::new()
        .records(
            0,
            &[
                record(10, 2, End, 7, [0; 2]),
                record(20, 1, Begin, 7, [0; 2]),
                record(30, 2, Begin, 7, [0; 2]),
                record(50, 1, End, 7, [0; 2]),
                record(60, 1, Begin, 7, [0; 2]),
            ],
        )
        .trace();
    let summary = summary(&trace);
    assert_eq!((summary.stray, summary.unended), (1, 2));
    let row = summary.rows.iter().find(|row| row.event == 1).expect("it is there");
    assert_eq!((row.durations.count, row.durations.total), (1, 30));
}

#[test]
fn intervals_of_a_thread_that_moves_to_another_processor_are_whole() {
    let trace = Builder::new()
        .records(0, &[record(10, 1, Begin, 7, [0; 2]), record(30, 1, Begin, 8, [0; 2])])
        .records(1, &[record(40, 1, End, 7, [0; 2]), record(70, 1, End, 8, [0; 2])])
        .trace();
    let summary = summary(&trace);
    assert_eq!((summary.rows[0].durations.count, summary.rows[0].durations.total), (2, 70));
}

#[test]
fn switches_told_by_one_thread_or_by_both_count_once() {
    let fields = [("who", U32), ("preempted", U32)];
    let definitions = [
        definition(1, "sched::in", Role::SwitchIn, &fields[..1]),
        definition(2, "sched::out", Role::SwitchOut, &fields),
    ];
    let out = |time, thread, next: u64, preempted: u64| {
        record(time, 2, Point, thread, [next | preempted << 32, 0])
    };
    let comes = |time, thread, last| record(time, 1, Point, thread, [last, 0]);
    let trace = Builder::new()
        .definitions(&definitions)
        .records(
            0,
            &[
                comes(10, 7, 0),
                // Told by both.
                out(30, 7, 8, 1),
                comes(31, 8, 7),
                // By the one that comes.
                comes(50, 7, 8),
                // By the one that goes.
                out(60, 7, 9, 0),
                out(80, 9, 0, 0),
                // The one before did not know who comes.
                comes(90, 7, 0),
            ],
        )
        .trace();
    let summary = summary(&trace);
    assert!(!summary.switches.is_seen_by_records());
    let matrix = &summary.switches.matrices()[&0];
    let cells: Vec<_> =
        matrix.iter().map(|(key, cell)| (*key, cell.count, cell.preempted, cell.ticks)).collect();
    assert_eq!(
        cells,
        [
            ((0, 7), 1, 0, 0),
            ((7, 8), 1, 1, 20),
            ((7, 9), 1, 0, 10),
            ((8, 7), 1, 0, 19),
            ((9, 7), 1, 0, 0)
        ]
    );
}

#[test]
fn who_waited_is_told_for_whom() {
    let definitions = [
        definition(1, "lock::wait", Role::Wait, &[("lock", U64), ("holder", U32)]),
        definition(2, "lock::hold", Role::Hold, &[("lock", U64)]),
    ];
    let lock = 0xf00;
    let trace = Builder::new()
        .definitions(&definitions)
        .records(
            0,
            &[
                record(10, 2, Begin, 7, [lock, 0]),
                record(60, 2, End, 7, [lock, 0]),
                record(70, 1, Begin, 7, [lock, 99]),
                record(75, 1, End, 7, [0, 0]),
            ],
        )
        .records(
            1,
            &[
                record(20, 1, Begin, 8, [lock, 0]),
                record(61, 1, End, 8, [lock, 0]),
                record(62, 2, Begin, 8, [lock, 0]),
                record(100, 2, End, 8, [lock, 0]),
            ],
        )
        .trace();
    let short = |waits: &[Wait]| -> Vec<_> {
        waits.iter().map(|wait| (wait.waiter, wait.holder, wait.what, wait.ticks)).collect()
    };
    assert_eq!(short(&summary(&trace).waits), [(8, 7, lock, 41), (7, 99, lock, 5)]);
    // The holder is reported although nothing else of it is selected; a thread that has released
    // the lock is not.
    let filter = Filter { threads: vec![8], ..Filter::default() };
    let summary = summarize(&trace, &filter).expect("the file is there");
    assert_eq!(short(&summary.waits), [(8, 7, lock, 41)]);
}

#[test]
fn requests_that_wait_for_a_change_are_found() {
    let trace = super::perfetto::swapped().trace();
    let delays = delays(&trace, &Filter::default()).expect("the file is there");
    let short: Vec<_> =
        delays.iter().map(|delay| (delay.request, delay.change, delay.ticks)).collect();
    assert_eq!(short, [(4711, 3, 2_000)]);
}

#[test]
fn order_is_in_doubt_where_the_second_was_delayed_more_than_the_gap() {
    let lock = 0xf00;
    let doubts = |points: u64, gap: u64| {
        let many = (0..points).map(|n| record(100 + n, 9, Point, 8, [0; 2]));
        let second: Vec<_> = many.chain([record(10_000 + gap, 1, Begin, 8, [lock, 0])]).collect();
        let trace = Builder::new()
            .definitions(&[definition(1, "lock::hold", Role::Hold, &[("lock", U64)])])
            .cost(Place::InVivo, 100.0, 0.0, 0.0)
            .records(0, &[record(10_000, 1, Begin, 7, [lock, 0])])
            .records(1, &second)
            .trace();
        let order = summary(&trace).order;
        assert_eq!(order.judged(), 1);
        (order.count(), order.doubts().first().map(|doubt| (doubt.gap(), doubt.delay)))
    };
    // Both wrote the record that is looked at; the second wrote ten more, of 100 ticks each.
    assert_eq!(doubts(10, 999), (1, Some((999, 1_000.0))));
    assert_eq!(doubts(10, 1_000), (0, None));
    assert_eq!(doubts(0, 1), (0, None));
}
