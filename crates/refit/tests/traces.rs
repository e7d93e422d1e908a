//! `refit report` and `refit export` as a user meets them.

#[path = "../../refit-instruments/tests/read/builder.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod builder;
mod stage;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use refit_instruments::block::Place;
use refit_instruments::definition::FieldKind::U64;
use refit_instruments::definition::Role;
use refit_instruments::record::Phase::{Begin, End, Point};

use builder::{Builder, definition, record};
use stage::Stage;

/// Two threads that share a lock, one switch, a loss; the writer was killed.
fn water(stage: &Stage) -> String {
    let hold = |thread, from| {
        [
            record(from, 1, Begin, thread, [0xf00, 0]),
            record(from + 20_000, 1, End, thread, [0xf00, 0]),
        ]
    };
    let trace = Builder::new()
        .definitions(&[
            definition(1, "Lock::hold", Role::Hold, &[("lock", U64)]),
            definition(2, "sched::in", Role::SwitchIn, &[("last", U64)]),
            definition(3, "Lock::steal", Role::Plain, &[]),
        ])
        .threads(&[(7, 7, "water"), (8, 7, "helper")])
        .cost(Place::InVitro, 20.0, 2.0, 40.0)
        .records(0, &hold(7, 10_000))
        .records(1, &hold(8, 40_000))
        .lose(0, |head| head.lost_full = 5)
        .records(0, &[record(90_000, 2, Point, 8, [7, 0])]);
    let path = stage.path("water.trace");
    fs::write(&path, trace.bytes).expect("room for it");
    path.to_str().expect("it is text").to_owned()
}

#[test]
fn a_report_says_what_a_trace_holds_and_what_it_lacks() {
    let stage = Stage::new();
    let file = water(&stage);
    let (code, text, error) = stage.run(&["report", &file]);
    assert_eq!((code, error.as_str()), (0, ""));
    for says in [
        "./water 512 on box",
        "lost        5 because the buffer was full",
        "cost        10.0 ns a record",
        "the recorder was killed",
        "COMPENSATED",
        "Context switches, processor 0",
        "water (7)",
        "Order in doubt: 0 of 1 access ",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let row = text.lines().find(|line| line.ends_with("  hold")).expect("a row for the method");
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[..5], ["2", "20.0", "µs", "20.0", "µs"], "{row}");
}

#[test]
fn a_report_for_programs_is_one_object_per_line() {
    let stage = Stage::new();
    let file = water(&stage);
    let (code, text, _) = stage.run(&["report", &file, "--json", "--class", "Lock"]);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(code, 0);
    assert_eq!(
        (lines[0]["lost"]["full"].as_u64(), lines[0]["ended_in_peace"].as_bool()),
        (Some(5), Some(false))
    );
    let events: Vec<_> = lines.iter().filter(|line| line["type"] == "event").collect();
    assert_eq!(events.len(), 1, "the class that was asked for");
    assert_eq!(events[0]["compensated"]["ns"].as_f64(), Some(19_980.0));
    let (_, text, _) = stage.run(&["report", &file, "--classes"]);
    let row =
        text.lines().find(|line| line.ends_with("Lock::steal")).expect("defined, never recorded");
    assert!(row.trim_start().starts_with('0'), "{row}");
}

#[test]
fn too_large_a_correction_is_refused_unless_asked_for() {
    let stage = Stage::new();
    let file = water(&stage);
    let (_, refused, _) = stage.run(&["report", &file, "--limit", "0"]);
    assert!(refused.contains("0 % is cost"), "{refused}");
    let (_, report, _) = stage.run(&["report", &file, "--limit", "100"]);
    assert!(!report.contains("% is cost"), "{report}");
}

#[test]
fn an_export_is_there_in_full_or_not_at_all() {
    let stage = Stage::new();
    let file = water(&stage);
    let to = stage.path("out");
    fs::write(&to, "before").expect("room for it");
    let out = to.to_str().expect("it is text");
    for format in ["perfetto", "folded", "firefox", "ndjson"] {
        let (code, text, error) = stage.run(&["export", &file, "--to", format, "-o", out]);
        assert_eq!((code, text.as_str(), error.as_str()), (0, "", ""), "{format}");
        let (_, text, _) =
            stage.run(&["export", &file, "--to", format, "--thread", "4711", "-o", out]);
        assert_eq!(text, "", "{format}");
    }
    let (code, svg, _) = stage.run(&["export", &file, "--to", "folded", "--svg"]);
    assert!(code == 0 && svg.contains("Lock::hold"));
    // Nothing to draw: what was there stays, and nothing is left beside it.
    fs::write(&to, "before").expect("room for it");
    stage.refuses(
        &["export", &file, "--to", "folded", "--svg", "--class", "x", "-o", out],
        "no complete interval",
    );
    assert_eq!(fs::read_to_string(&to).expect("it is there"), "before");
    let beside = fs::read_dir(to.parent().expect("a directory")).expect("it is there");
    let hidden = beside.filter(|entry| {
        entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(".tmp"))
    });
    assert_eq!(hidden.count(), 0);
    let mode = fs::metadata(&to).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077 & !0o044, 0, "no more than any file of the user: {mode:o}");
    let (code, _, error) = stage.run(&["export", &file, "--to", "perfetto", "--svg"]);
    assert_eq!(code, 2, "{error}");
}

#[test]
fn what_cannot_be_read_or_written_is_one_line() {
    let stage = Stage::new();
    let file = water(&stage);
    let path = |name: &str| stage.path(name).to_str().expect("it is text").to_owned();
    fs::write(stage.path("empty"), "").expect("room for it");
    fs::write(stage.path("text"), "What a day.\n").expect("room for it");
    fs::write(stage.path("cut"), &fs::read(&file).expect("it is there")[..20])
        .expect("room for it");
    let mut newer = fs::read(&file).expect("it is there");
    newer[8] = 99;
    fs::write(stage.path("newer"), newer).expect("room for it");
    for (name, says) in [
        ("empty", "the file is empty"),
        ("text", "it is not a trace of refit"),
        ("cut", "ends within its head"),
        ("newer", "version 99"),
        ("gone", "there is no such file"),
        (".", "not a regular file"),
    ] {
        stage.refuses(&["report", &path(name)], says);
        stage.refuses(&["export", &path(name), "--to", "ndjson"], says);
    }
    stage.refuses(
        &["export", &file, "--to", "ndjson", "-o", &path("no/where")],
        "name a file that you may write to",
    );
}
