//! Postmark, a mail server's load: its counts are the same on a plain directory, on the mount, and
//! on the mount while caches are swapped. It chooses operations by its seed, and its counts depend
//! on the files that it finds.

use refit_acceptance::{CacheMode, Limit, Pace, Served, possible, run, scratch, tool};
use std::fs;
use std::path::Path;
use std::process::Command;

const LIMIT: u64 = 120;

/// Returns the lines of the report that count operations, without their rates: `453 created`.
fn counts(postmark: &Path, location: &Path) -> Vec<String> {
    let settings = [
        format!("set location {}", location.display()),
        "set number 400".into(),
        "set transactions 4000".into(),
        "set size 500 60000".into(),
        "set subdirectories 7".into(),
        "set seed 4711".into(),
        "run".into(),
        "quit\n".into(),
    ];
    let script = settings.join("\n");
    let output = run(&mut Command::new(postmark), &script, Limit::seconds(LIMIT)).success();
    let report = output.lines().skip_while(|line| !line.starts_with("Files:"));
    let counts: Vec<_> = report
        .filter(|line| line.starts_with('\t'))
        .map(|line| line.split('(').next().unwrap_or_default().trim().to_owned())
        .collect();
    assert_eq!(counts.len(), 10, "postmark has not run to its end: {output}");
    assert!(!output.contains("Error"), "{output}");
    assert_eq!(fs::read_dir(location).unwrap().count(), 0, "postmark leaves nothing");
    counts
}

#[test]
fn the_counts_are_those_of_a_plain_directory() {
    let Some(postmark) = possible().then(|| tool("postmark")).flatten() else { return };
    let plain = scratch();
    let expected = counts(&postmark, plain.path());
    for (cache, how) in [(CacheMode::Kernel, "kernel"), (CacheMode::Direct, "direct")] {
        let mut served = Served::new(&format!("postmark-{how}"), cache, 4 << 20);
        assert_eq!(counts(&postmark, &served.directory()), expected, "{how}");
        let storm = served.storm(Pace::EachMillisecond);
        assert_eq!(counts(&postmark, &served.directory()), expected, "{how}, swapping");
        storm.stop();
        served.unmount();
    }
}
