//! Tests that folded stacks, flame graphs, profiles for Firefox and lines of JSON show the contents
//! of a trace.

use refit_instruments::analysis::Filter;
use refit_instruments::export::{self, Error, Folded};
use refit_instruments::read::Trace;
use refit_instruments::record::Phase::{Begin, End};
use serde_json::{Value, json};

use super::builder::{Builder, definition, record};
use super::perfetto::{swapped, waits};

type Export = fn(&Trace, &Filter, &mut dyn std::io::Write) -> Result<(), Error>;

fn text(builder: &Builder, export: Export) -> String {
    let mut bytes = Vec::new();
    export(&builder.trace(), &Filter::default(), &mut bytes).expect("memory takes it");
    String::from_utf8(bytes).expect("it is text")
}

fn folded(trace: &Trace, filter: &Filter, to: &mut dyn std::io::Write) -> Result<(), Error> {
    export::folded(trace, filter, Folded::Intervals, to)
}

/// Builds a trace with two threads of one name and one of another, and an interval without an end.
fn stacks() -> Builder {
    let plain = |id, name| definition(id, name, Default::default(), &[]);
    let of = |thread, from: u64| {
        [
            record(from, 1, Begin, thread, [0; 2]),
            record(from + 1_000, 2, Begin, thread, [0; 2]),
            record(from + 5_000, 2, End, thread, [0; 2]),
            record(from + 6_000, 1, End, thread, [0; 2]),
        ]
    };
    Builder::new()
        .definitions(&[plain(1, "Cache::read"), plain(2, "Disk;read")])
        .threads(&[(7, 7, "water"), (8, 7, "water"), (9, 7, "other")])
        .records(0, &of(7, 1_000))
        .records(1, &of(8, 20_000))
        .records(0, &of(9, 40_000))
        .records(1, &[record(60_000, 1, Begin, 9, [0; 2])])
}

#[test]
fn folded_stacks_have_the_own_time_of_threads_of_one_name() {
    let lines = "\
other;Cache::read 1000
other;Cache::read;Disk:read 2000
water;Cache::read 2000
water;Cache::read;Disk:read 4000
";
    assert_eq!(text(&stacks(), folded), lines);
}

#[test]
fn a_flame_graph_shows_the_frames_and_is_refused_without_any() {
    let svg = text(&stacks(), |trace, filter, to| {
        export::flame_graph(trace, filter, Folded::Intervals, to)
    });
    assert!(svg.contains("<svg") && svg.contains("Disk:read") && svg.contains("./water 512"));
    let (nothing, filter) = (Builder::new().trace(), Filter::default());
    let empty = export::flame_graph(&nothing, &filter, Folded::Intervals, &mut Vec::new());
    assert!(matches!(empty, Err(Error::Nothing)), "{empty:?}");
}

#[test]
fn every_record_and_every_loss_is_a_line_of_json() {
    let text = text(&swapped(), export::ndjson);
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 1 + 14 + 1);
    assert_eq!(lines[0]["type"], "trace");
    assert_eq!((&lines[0]["records"], &lines[0]["lost"]["full"]), (&json!(14), &json!(40)));
    assert_eq!(
        lines[3],
        json!({
            "type": "record", "time_ns": 1_000_001_000, "ticks": 2_000, "processor": 0, "thread": 101,
            "id": 1, "event": "fcm::read", "phase": "begin", "fields": {"request": 4711, "offset": 4096},
        })
    );
    assert_eq!((&lines[14]["type"], &lines[14]["lost"]["torn"]), (&json!("lost"), &json!(2)));
    assert_eq!(lines[15]["event"], Value::Null);
    assert_eq!(lines[15]["fields"], json!({"payload": [1, 2]}));
}

#[test]
fn a_profile_for_firefox_has_threads_markers_and_weights() {
    let profile: Value = serde_json::from_str(&text(&stacks(), export::firefox)).expect("JSON");
    let threads = profile["threads"].as_array().expect("there are threads");
    let names: Vec<_> =
        threads.iter().map(|thread| thread["name"].as_str().expect("named")).collect();
    assert_eq!(names.len(), 3);
    for thread in threads {
        assert_eq!(thread["markers"]["length"], 2, "the one without an end is none");
        // 500 ns at the beginning, 2 µs inside, 500 ns at the end: less than a microsecond is
        // carried over.
        let weights = thread["samples"]["weight"].as_array().expect("there are samples");
        let sum: i64 = weights.iter().map(|weight| weight.as_i64().expect("a number")).sum();
        assert_eq!(sum, 3, "{weights:?}");
    }
    let text = profile.to_string();
    assert!(text.contains("Cache::read") && text.contains("Disk;read"));
}

#[test]
fn folded_stacks_of_waits_have_the_time_off_the_processors() {
    let lines =
        text(&waits(), |trace, filter, to| export::folded(trace, filter, Folded::OffCpu, to));
    // A tick is half a nanosecond.
    let stack = "water;outer (w);inner (w);libc+0x10";
    assert_eq!(lines, format!("{stack} 3000\n{stack};[preempted] 1000\n"));
    // The time of intervals is as without stacks.
    assert_eq!(text(&waits(), folded), "water;Cache::read 4500\n");
}

#[test]
fn a_profile_for_firefox_has_a_marker_and_a_sample_of_each_wait() {
    let profile: Value = serde_json::from_str(&text(&waits(), export::firefox)).expect("JSON");
    let thread = &profile["threads"][0];
    // The interval, two waits, and what is not off: six switches are points.
    let markers = &thread["markers"];
    let stacks = markers["data"].as_array().expect("markers have data");
    let stacks = stacks.iter().filter(|data| data["cause"].is_object()).count();
    assert_eq!(stacks, 2, "{markers}");
    let weights = thread["samples"]["weight"].as_array().expect("there are samples");
    let weights: Vec<_> = weights.iter().map(|weight| weight.as_i64().expect("a number")).collect();
    // 1 µs in the interval, 3 µs off, then 0.5 µs carried over, 1 µs off.
    assert_eq!(weights, [1, 3, 1], "{thread}");
}
