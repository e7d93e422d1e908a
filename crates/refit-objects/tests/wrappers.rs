//! Ready wrappers: what they count, and what is wrong with what cannot be made.

mod store;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

use refit_change::{End, Phase};
use refit_objects::wrappers::{Setting, known};
use refit_objects::{
    Pre, Which, WrapperInfo, attach_typed, destroy, object, unwrap_named, wrap_named,
};

use store::{Opaque, StoreInterface, StoreRef, StoreWrapper, store};

fn settings(text: &str) -> Vec<Setting> {
    let pair = |word: &str| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    text.split_whitespace().filter_map(pair).collect()
}

fn wrap(s: StoreRef, wrapper: &str, text: &str) {
    let report = wrap_named(s.id(), wrapper, &settings(text), 1, "me");
    assert!(report.committed(), "{report:?}");
}

/// Why it was refused.
fn refused(s: StoreRef, wrapper: &str, text: &str) -> String {
    let report = wrap_named(s.id(), wrapper, &settings(text), 1, "me");
    let End::Refused(why) = report.end else { panic!("{report:?}") };
    assert_eq!(object(s.id()).expect("it lives").wrappers, [], "nothing was attached");
    why
}

fn info(s: StoreRef) -> WrapperInfo {
    object(s.id()).expect("it lives").wrappers.remove(0)
}

fn stats(s: StoreRef) -> BTreeMap<String, u64> {
    info(s).stats.into_iter().collect()
}

fn read(s: StoreRef, offset: u64, length: usize) -> Result<usize, i32> {
    s.read(offset, &mut vec![0; length])
}

fn add(s: StoreRef, times: usize) {
    for _ in 0..times {
        s.add(1);
    }
}

#[test]
fn wrapping_is_a_change_with_a_report() {
    let s = store("reported");
    let report = wrap_named(s.id(), "count", &[], 7, "me");
    assert!(report.committed());
    let phases: Vec<_> = report.phases.iter().map(|p| p.phase).collect();
    assert_eq!(phases, [Phase::Prepare, Phase::Install, Phase::Commit]);
    let change = &report.change;
    assert_eq!((change.id, change.mechanism.as_str()), (7, "wrap"));
    assert_eq!((change.from.as_str(), change.to.as_str()), ("one", "count(one)"));
    assert_eq!((change.target.as_str(), change.owner.as_str()), ("store:reported", "me"));
    wrap(s, "latency", "method=add");
    let report = unwrap_named(s.id(), &Which::Named("count".into()), 8, "me");
    let change = &report.change;
    assert_eq!((change.from.as_str(), change.to.as_str()), ("latency(count(one))", "latency(one)"));
    assert_eq!(info(s).options, "method=add");
    assert!(unwrap_named(s.id(), &Which::All, 9, "me").committed());
    destroy(s.id());
    assert!(wrap_named(s.id(), "count", &[], 10, "me").target_gone);
}

#[test]
fn count_counts_calls_errors_and_panics() {
    let s = store("count");
    wrap(s, "count", "");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| add(s, 1000));
        }
    });
    assert_eq!(read(s, u64::MAX, 1), Err(22));
    assert_eq!(read(s, 0, 1), Ok(1));
    assert!(catch_unwind(AssertUnwindSafe(|| s.fail())).is_err());
    let expected =
        [("add", 3000), ("fail", 1), ("fail.panics", 1), ("read", 2), ("read.errors", 1)];
    let expected: BTreeMap<_, _> = expected.into_iter().map(|(k, n)| (k.to_owned(), n)).collect();
    assert_eq!(stats(s), expected);
    destroy(s.id());
}

#[test]
fn latency_measures_what_a_call_takes() {
    let s = store("latency");
    wrap(s, "fault", "delay=5ms method=add every=100");
    wrap(s, "latency", "");
    add(s, 1000);
    let latency = object(s.id()).expect("it lives").wrappers.remove(1);
    let stats: BTreeMap<_, _> = latency.stats.into_iter().collect();
    assert_eq!(stats["add.calls"], 1000);
    // One of a hundred took five milliseconds; most of the others next to nothing, whatever the
    // machine does.
    assert!(stats["add.max_ns"] >= 4_900_000, "{stats:?}");
    assert!(stats["add.p50_ns"] < 4_000_000, "{stats:?}");
    assert!(stats["add.p50_ns"] <= stats["add.p99_ns"]);
    assert!(stats["add.p99_ns"] <= stats["add.max_ns"]);
    let [histogram] = &latency.histograms[..] else { panic!("{:?}", latency.histograms) };
    assert_eq!((histogram.name.as_str(), histogram.unit.as_str()), ("add", "ns"));
    assert_eq!(histogram.ranges.iter().map(|(_, n)| n).sum::<u64>(), 1000);
    destroy(s.id());
}

/// Holds additions until three of them are there.
struct Meeting(Barrier);

impl StoreWrapper for Meeting {
    fn pre_add(&self, _n: &mut u64) -> Pre<u64> {
        self.0.wait();
        Pre::Forward
    }
}

#[test]
fn concurrency_counts_who_is_inside() {
    let s = store("concurrency");
    let meeting = StoreInterface::wrapper("meeting", Meeting(Barrier::new(3)));
    attach_typed(s, meeting).expect("it lives");
    wrap(s, "concurrency", "method=add");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| add(s, 10));
        }
    });
    s.sum();
    let counted: BTreeMap<_, _> =
        object(s.id()).expect("it lives").wrappers.remove(1).stats.into_iter().collect();
    assert_eq!((counted["inside"], counted["at_most"]), (0, 3));
    assert_eq!(counted["calls"], 30);
    // Of three that meet, two have begun while another was inside.
    assert!((20..30).contains(&counted["overlapping"]), "{counted:?}");
    destroy(s.id());
}

#[test]
fn sequential_tells_runs_from_leaps() {
    let s = store("sequential");
    wrap(s, "sequential", "");
    // Two runs at the same time, of ten accesses each.
    for n in 0..10 {
        for start in [0, 1 << 30] {
            assert_eq!(read(s, start + n * 4096, 4096), Ok(4096));
        }
    }
    let counted = stats(s);
    assert_eq!((counted["accesses"], counted["following"]), (20, 18));
    assert_eq!((counted["following_percent"], counted["longest_present_run"]), (90, 10));
    for n in 0..100 {
        assert_eq!(read(s, (n * 7919 % 100) << 20, 4096), Ok(4096));
    }
    let counted = stats(s);
    assert_eq!((counted["accesses"], counted["following"]), (120, 18));
    // Two runs of ten, and each leap is a run of one.
    assert_eq!(info(s).histograms[0].ranges, [(1, 100), (8, 2)]);
    s.add(1);
    s.open(Opaque(1));
    assert_eq!(stats(s)["accesses"], 120, "methods without an offset are no accesses");
    destroy(s.id());
}

#[test]
fn sequential_can_look_at_any_number() {
    let s = store("sequential numbers");
    wrap(s, "sequential", "offset=n method=add");
    for n in 5..15 {
        s.add(n);
    }
    assert_eq!(stats(s)["following"], 9);
    destroy(s.id());
}

#[test]
fn sequential_counts_offsets_in_units_and_lets_accesses_get_less_than_they_ask_for() {
    let s = store("sequential units");
    wrap(s, "sequential", "unit=4096");
    // Each asks for sixteen pages and gets four; then for one, and gets it.
    for page in (0..40).step_by(4) {
        assert_eq!(read(s, page, 16 * 4096), Ok(16 * 4096));
    }
    for page in 40..50 {
        assert_eq!(read(s, page, 4096), Ok(4096));
    }
    assert_eq!((stats(s)["accesses"], stats(s)["following"]), (20, 19));
    // The same again; before it, and behind a gap.
    for page in [49, 49, 47, 52] {
        assert_eq!(read(s, page, 4096), Ok(4096));
    }
    assert_eq!((stats(s)["accesses"], stats(s)["following"]), (22, 19));
    destroy(s.id());
}

#[test]
fn arguments_shows_how_values_are_spread() {
    let s = store("arguments");
    wrap(s, "arguments", "argument=buf");
    for length in [0, 1, 4096, 5000, 100] {
        assert_eq!(read(s, 0, length), Ok(length));
    }
    let histograms = info(s).histograms;
    assert_eq!(histograms[0].name, "read.buf");
    assert_eq!(histograms[0].ranges, [(0, 1), (1, 1), (64, 1), (4096, 2)]);
    destroy(s.id());
}

#[test]
fn fault_lets_calls_fail_where_they_can() {
    let s = store("fault");
    wrap(s, "fault", "error=5 every=3");
    let results: Vec<_> = (0..6).map(|n| read(s, n, 1)).collect();
    assert_eq!(results, [Ok(1), Ok(1), Err(5), Ok(1), Ok(1), Err(5)]);
    assert_eq!(s.add(1), 0, "a method that cannot fail is left alone");
    assert_eq!(s.sum(), 1);
    let counted = stats(s);
    assert_eq!((counted["calls"], counted["failed"]), (6, 2));
    destroy(s.id());
}

#[test]
fn what_cannot_be_made_is_refused_with_what_there_is() {
    let s = store("refused");
    for (wrapper, text, why) in [
        (
            "counts",
            "",
            "no wrapper is called \"counts\"; there are: count, latency, concurrency, sequential, arguments, fault",
        ),
        ("count", "x=1", "count has no option \"x\"; it has none"),
        ("latency", "x=1", "latency has no option \"x\"; there are: method"),
        (
            "latency",
            "method=add method=add",
            "latency: the option method was given twice; give it once",
        ),
        (
            "latency",
            "method=ad",
            "latency: method=ad is invalid; methods of store objects are: read, add, open, fail, sum",
        ),
        ("arguments", "", "arguments needs argument=…; there are: offset, buf, n"),
        (
            "arguments",
            "argument=what",
            "arguments: argument=what is invalid; no chosen method has such an argument that can be seen; \
             there are: offset, buf, n",
        ),
        (
            "sequential",
            "offset=buf",
            "sequential: offset=buf is invalid; no chosen method has such a number; there are: offset, buf, n",
        ),
        (
            "sequential",
            "method=sum",
            "sequential needs offset=…; no chosen method has a number `offset`; there are: offset, buf, n",
        ),
        ("sequential", "offset=n", "sequential needs length=…; there are: offset, buf, n"),
        ("fault", "", "fault needs delay=…; or error=…, e.g. delay=1ms or error=5"),
        ("fault", "delay=1", "fault: delay=1 is invalid; write a time, e.g. 200us, 1ms or 2s"),
        (
            "fault",
            "delay=99999999999999999999s",
            "fault: delay=99999999999999999999s is invalid; write a time, e.g. 200us, 1ms or 2s",
        ),
        ("fault", "error=0", "fault: error=0 is invalid; write a whole number from 1"),
        ("fault", "error=5000", "fault: error=5000 is invalid; write an errno, e.g. 5 for EIO"),
        ("fault", "error=5 every=x", "fault: every=x is invalid; write a whole number from 1"),
        (
            "fault",
            "error=5 method=add",
            "fault cannot be used on store objects: no chosen method has a result that can express an errno",
        ),
    ] {
        assert_eq!(refused(s, wrapper, text), why, "{wrapper} {text}");
    }
    destroy(s.id());
}

#[test]
fn every_wrapper_says_what_it_is_for() {
    for wrapper in known() {
        assert!(!wrapper.about.is_empty());
        assert!(wrapper.options.iter().all(|(_, about)| !about.is_empty()), "{}", wrapper.name);
    }
}
