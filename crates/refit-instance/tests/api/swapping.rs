//! Swaps by the control API: streams of reports, repetition, refusals, and requesters that leave.

use std::sync::atomic::Ordering;
use std::thread;

use refit_change::{End, Report};
use refit_instance::Kind;
use refit_instance::wire::{ChangesQuery, JournalLine, Repeat, Swap};

use crate::{stage, swap};

#[test]
fn swaps_what_matches_and_can_and_writes_it_down() {
    let stage = stage();
    let lines = stage.client.swap(&swap("*logs*", "partitioned")).expect("it begins");
    assert_eq!(lines.expected(), Some(2));
    let reports: Vec<Report> = lines.collect::<Result<_, _>>().expect("it ends");
    let targets: Vec<_> = reports.iter().map(|r| (r.change.id, &*r.change.target)).collect();
    assert_eq!(targets, [(1, "fcm:/logs/a"), (2, "fcm:/logs/b")]);
    let owner = format!("pid {}", std::process::id());
    assert!(reports[0].change.owner.ends_with(&owner), "{}", reports[0].change.owner);

    let lines = stage.client.changes(&ChangesQuery::default()).expect("it answers");
    let journal: Vec<JournalLine> = lines.collect::<Result<_, _>>().expect("it ends");
    let JournalLine::Entry { seq: 1, report } = &journal[1] else { panic!("{journal:?}") };
    assert_eq!(**report, reports[1]);

    let last = ChangesQuery { last: Some(1), ..Default::default() };
    assert_eq!(stage.client.changes(&last).expect("it answers").count(), 1);
}

#[test]
fn a_dry_run_is_not_written_down_and_does_not_repeat() {
    let stage = stage();
    let request = Swap { dry_run: true, ..swap("fcm:/logs/*", "partitioned") };
    let lines = stage.client.swap(&request).expect("it begins");
    let reports: Vec<Report> = lines.collect::<Result<_, _>>().expect("it ends");
    assert!(reports.len() == 2 && reports.iter().all(|r| r.end == End::Rehearsed));
    assert!(stage.instance.journal().entries().is_empty());
    let repeat = Repeat { others: vec![], every_us: 100, for_ms: Some(1) };
    let refusal = stage.client.swap(&Swap { repeat: Some(repeat), ..request }).err();
    assert_eq!(refusal.map(|r| r.kind), Some(Kind::Malformed));
}

#[test]
fn swaps_again_and_again_until_the_time_is_over() {
    let stage = stage();
    let repeat = Repeat { others: vec!["partitioned".into()], every_us: 100, for_ms: Some(150) };
    let request = Swap { repeat: Some(repeat), ..swap("fcm:/logs/*", "shared") };
    let lines = stage.client.swap(&request).expect("it begins");
    assert_eq!(lines.expected(), None, "nobody knows how many they will be");
    let reports: Vec<Report> = lines.collect::<Result<_, _>>().expect("it ends");
    let begin: Vec<_> =
        reports.iter().take(4).map(|r| (&*r.change.target, &*r.change.to)).collect();
    let (a, b) = ("fcm:/logs/a", "fcm:/logs/b");
    assert_eq!(
        begin,
        [(a, "partitioned"), (b, "partitioned"), (a, "shared"), (b, "shared")],
        "in turn, to and fro"
    );
    assert_eq!(stage.instance.journal().entries().len(), reports.len());
}

#[test]
fn stops_swapping_when_the_requester_goes_away() {
    let stage = stage();
    let repeat = Repeat { others: vec![], every_us: 0, for_ms: None };
    let request = Swap { repeat: Some(repeat), ..swap("fcm:/logs/a", "shared") };
    let mut lines = stage.client.swap(&request).expect("it begins");
    assert!(lines.next().expect("a line").expect("a report").committed());
    drop(lines);
    let journal = || stage.instance.journal().next_id();
    // Swaps get their numbers when they begin, so from some moment on all numbers belong to this
    // test.
    let mut last = journal();
    let quiet = (0..1000).any(|_| {
        // Polls until swaps of the stream that was dropped have stopped; the assertion bounds it.
        thread::sleep(std::time::Duration::from_millis(10));
        let now = journal();
        let quiet = now == last + 1;
        last = now;
        quiet
    });
    assert!(quiet, "it still swaps");
}

#[test]
fn refuses_unknown_objects_and_implementations() {
    let stage = stage();
    let why = stage.client.swap(&swap("fcm:/nothing", "shared")).expect_err("refused");
    assert_eq!((why.kind, &*why.obstacle), (Kind::Unknown, "no such object"));
    let why = stage.client.swap(&swap("fcm:*", "paged")).expect_err("refused");
    assert_eq!(why.kind, Kind::Unknown);
    assert_eq!(why.remedy, "there are: partitioned, shared");
    assert!(stage.instance.journal().entries().is_empty(), "nothing was begun");
}

#[test]
fn rolls_back_when_the_requester_goes_away() {
    let stage = stage();
    let lines = stage.client.swap(&swap("*", "partitioned")).expect("it begins");
    let mut lines = lines;
    for _ in 0..2 {
        assert!(lines.next().expect("a line").expect("a report").committed());
    }
    // A swap that has not begun when the requester goes away never does.
    while !stage.stuck.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    drop(lines);
    let follow = ChangesQuery { follow: true, from: Some(2), last: None };
    let line = stage.client.changes(&follow).expect("it answers").next();
    let Some(Ok(JournalLine::Entry { seq: 2, report })) = line else { panic!("{line:?}") };
    assert_eq!(report.change.target, "fcm:/stuck");
    assert_eq!(report.end, End::RolledBack("requester gone".into()));
}
