//! Tests with the journal of requests: over 10^5 swaps, while wrappers are attached and detached,
//! every request is answered exactly once.

use refit_acceptance::{CacheMode, Pace, Served, Storm, caches, pattern, possible};
use refit_files::RequestEvent;
use refit_objects::{Which, unwrap_named, wrap_named};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const SWAPS: u64 = 100_000;
/// The number of events that the journal keeps, which is more than the test makes.
const CAPACITY: usize = 8 << 20;
/// Far more than a request takes, unless it hangs.
const LIMIT: Duration = Duration::from_secs(120);
const FILES: u64 = 4;

/// Uses a file as long as the storm needs.
fn work(directory: &Path, number: u64, storm: &Storm) {
    let file =
        OpenOptions::new().read(true).write(true).open(directory.join(busy(number))).unwrap();
    let other = directory.join(format!("other{number}"));
    for round in 0.. {
        if !storm.goes_on(SWAPS) {
            break;
        }
        let data = pattern(number << 32 | round, 5000);
        let at = round % 40 * 3000;
        file.write_all_at(&data, at).unwrap();
        let mut again = vec![0; data.len()];
        file.read_exact_at(&mut again, at).unwrap();
        assert!(again == data, "file {number}, round {round}");
        if round % 16 == 0 {
            fs::write(&other, &data).unwrap();
            assert_eq!(fs::metadata(&other).unwrap().len(), 5000);
            fs::remove_file(&other).unwrap();
            assert!(File::open(&other).is_err());
        }
    }
}

/// Attaches wrappers to the caches of all files and detaches them again, as long as the storm
/// needs; returns the number of attachments.
fn wrap(prefix: &str, storm: &Storm) -> u64 {
    let mut wraps = 0;
    while storm.goes_on(SWAPS) {
        let all = caches(prefix).into_iter();
        for (cache, wrapper) in all.zip(["count", "latency", "concurrency"].iter().cycle()) {
            // A file that was removed in the meantime is not an error.
            let report = wrap_named(cache.id, wrapper, &[], 0, "acceptance test");
            assert!(report.committed() || report.target_gone, "{report:?}");
            thread::sleep(Duration::from_micros(200));
            let report = unwrap_named(cache.id, &Which::All, 0, "acceptance test");
            assert!(report.committed() || report.target_gone, "{report:?}");
            wraps += 1;
        }
    }
    wraps
}

fn busy(number: u64) -> String {
    format!("busy{number}")
}

#[test]
fn every_request_is_answered_once() {
    if !possible() {
        return;
    }
    let mut served = Served::new("requests", CacheMode::Direct, 4 << 20);
    served.mount().start_request_journal(CAPACITY);
    for number in 0..FILES {
        fs::write(served.path(&busy(number)), pattern(number, 1000)).unwrap();
    }
    let storm = served.storm(Pace::Continuous);
    let directory = served.directory();
    let prefix = served.prefix();
    let wraps = thread::scope(|scope| {
        for number in 0..FILES {
            let (directory, storm) = (&directory, &storm);
            scope.spawn(move || work(directory, number, storm));
        }
        scope.spawn(|| wrap(&prefix, &storm)).join().expect("the wrapping thread failed")
    });
    assert!(wraps > 100, "{wraps} wraps are too few to show anything");
    let tally = storm.stop();
    assert!(tally.committed >= SWAPS, "stuck after {} swaps", tally.committed);
    // Programs do not wait for the reply to a close, so some of these may still be in progress.
    let unanswered = || {
        let stats = served.mount().stats();
        stats.requests - stats.replies
    };
    let until = Instant::now() + LIMIT;
    while unanswered() > 0 {
        assert!(Instant::now() < until, "{} requests have no answer", unanswered());
        thread::sleep(Duration::from_millis(1));
    }
    let (events, lost) = served.mount().stop_request_journal();
    assert_eq!(lost, 0, "the journal was too small");
    let mut counts: HashMap<u64, [u32; 2]> = HashMap::new();
    for (request, event) in events {
        counts.entry(request).or_default()[usize::from(event == RequestEvent::Answered)] += 1;
    }
    let wrong: Vec<_> = counts.iter().filter(|(_, count)| **count != [1, 1]).take(10).collect();
    assert!(wrong.is_empty(), "request, [begun, answered]: {wrong:?}");
    eprintln!("{} requests, each answered once", counts.len());
    assert!(counts.len() > 10_000, "{} requests are too few to show anything", counts.len());
    served.unmount();
}
