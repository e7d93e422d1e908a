//! `refit swap` and `refit upgrade` as a user meets them: one object, many, classes, and probation.

mod stage;

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use stage::Stage;

#[test]
fn swaps_a_cache_and_keeps_what_is_in_it() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let file = stage.path("mnt").join("some file");
    let text = "dirty ".repeat(10_000);
    fs::write(&file, &text).expect("written");
    let name = "fcm:/some file";
    for (from, to) in [("shared", "partitioned"), ("partitioned", "shared"), ("shared", "shared")] {
        let (code, stdout, stderr) = stage.run(&["swap", name, to, "--json"]);
        assert_eq!((code, &*stderr), (0, ""));
        let report: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON object");
        assert_eq!(report["end"], "committed");
        assert_eq!(
            (&report["change"]["from"], &report["change"]["to"]),
            (&from.into(), &to.into())
        );
        let (_, stdout, _) = stage.run(&["show", name]);
        assert!(stdout.contains(&format!("implementation  {to}")), "{stdout}");
        assert_eq!(fs::read_to_string(&file).expect("read"), text);
    }
    let (code, stdout, _) = stage.run(&["swap", "fcm:*", "partitioned"]);
    assert_eq!(code, 0);
    for word in ["committed", "prepare", "forward", "block", "transfer", "commit"] {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
    let (_, journal, _) = stage.run(&["changes", "--json"]);
    assert_eq!(journal.lines().count(), 4, "{journal}");
    let (_, journal, _) = stage.run(&["changes", "-n", "1"]);
    assert!(journal.ends_with("shared → partitioned  fcm:/some file\n"), "{journal}");
    let (code, stdout, _) = stage.run(&["cache", "fcm:/some*", "direct"]);
    assert_eq!((code, stdout.starts_with("1 file ")), (0, true), "{stdout}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    let source = stage.path("source").join("some file");
    assert_eq!(fs::read_to_string(source).expect("it is there"), text);
}

#[test]
fn a_dry_run_shows_how_state_would_move_and_changes_nothing() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let file = stage.path("mnt").join("a");
    let text = "dirty ".repeat(10_000);
    fs::write(&file, &text).expect("written");
    let (code, stdout, stderr) = stage.run(&["swap", "fcm:/a", "partitioned", "--dry-run"]);
    assert_eq!((code, &*stderr), (0, ""), "{stdout}");
    for part in [
        "dry run ",
        "shared can export   1 stripes (by reference), 2 lazy (lazily), 3 partitions (in partitions), \
         4 canonical",
        "partitioned can import   1 stripes (by reference), 2 lazy (lazily), 3 partitions",
        "chosen: stripes",
        "shadow transfer: 15 items; export ",
        "nothing has changed",
    ] {
        assert!(stdout.contains(part), "{part} is not in: {stdout}");
    }
    let args = ["swap", "fcm:/a", "partitioned", "--dry-run", "--protocol", "canonical", "--json"];
    let (code, stdout, _) = stage.run(&args);
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON object");
    assert_eq!((code, &report["end"]), (0, &"rehearsed".into()));
    let moved = &report["transfers"][0];
    assert_eq!((&moved["route"][0], &moved["items"]), (&"canonical".into(), &15.into()));
    assert_eq!(moved["negotiation"]["why"], "it was asked for");
    let args = ["swap", "fcm:/a", "partitioned", "--dry-run", "--protocol", "ranges"];
    let (code, stdout, stderr) = stage.run(&args);
    assert_eq!(code, 1);
    assert!(stdout.contains("`ranges` was asked for"), "{stdout}");
    assert!(stderr.contains("1 of 1 did not commit"), "{stderr}");
    let (_, shown, _) = stage.run(&["show", "fcm:/a"]);
    assert!(shown.contains("implementation  shared"), "{shown}");
    let (_, journal, _) = stage.run(&["changes", "--json"]);
    assert_eq!(journal, "", "a dry run is no change");
    // And what was shown is what happens, in either protocol.
    let args = ["swap", "fcm:/a", "partitioned", "--protocol", "canonical"];
    let (code, _, stderr) = stage.run(&args);
    assert_eq!((code, &*stderr), (0, ""));
    assert_eq!(fs::read_to_string(&file).expect("read"), text);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    let source = stage.path("source").join("a");
    assert_eq!(fs::read_to_string(source).expect("it is there"), text);
}

#[test]
fn swaps_again_and_again_and_sums_up() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let file = stage.path("mnt").join("a");
    fs::write(&file, "text").expect("written");
    let args = ["swap", "fcm:/a", "shared", "partitioned", "--every", "1ms", "--for", "300ms"];
    let (code, stdout, stderr) = stage.run(&args);
    assert_eq!((code, &*stderr), (0, ""));
    let first = stdout.lines().next().unwrap_or_default();
    assert!(first.contains(" committed, 0 rolled back, 0 refused; median "), "{stdout}");
    let (code, stdout, _) = stage.run(&[&args[..], &["--json"]].concat());
    let reports: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
    assert_eq!(code, 0);
    for pair in reports.windows(2) {
        assert_eq!(pair[0]["change"]["to"], pair[1]["change"]["from"], "to and fro");
    }
    assert!(reports.len() >= 2, "{stdout}");
    assert_eq!(fs::read_to_string(&file).expect("read"), "text");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
}

#[test]
fn many_objects_are_summed_up() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    for i in 0..50 {
        fs::write(stage.path("mnt").join(format!("{i}")), "text").expect("written");
    }
    let (code, stdout, stderr) = stage.run(&["swap", "fcm:*", "partitioned"]);
    assert_eq!((code, &*stderr), (0, ""), "no progress bar where nobody watches");
    assert!(stdout.starts_with("50 committed, 0 rolled back, 0 refused; median "), "{stdout}");
    assert!(stdout.contains('█'), "{stdout}");
    let (_, stdout, _) = stage.run(&["ls", "fcm:*", "--json"]);
    assert_eq!(stdout.lines().count(), 50);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
}

#[test]
fn classes_are_upgraded_whole_held_up_and_interrupted() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    for n in 0..100 {
        fs::write(serving.mountpoint.join(format!("file{n}")), "text").expect("written");
    }
    let (code, stdout, _) = stage.run(&["classes"]);
    let mut rows = stdout.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    assert!(code == 0 && rows.any(|row| row.starts_with(&["fcm", "shared", "100"])), "{stdout}");
    let (code, stdout, stderr) = stage.run(&["upgrade", "fcm", "partitioned"]);
    assert!(code == 0 && stdout.contains("100 objects swapped"), "{stdout}{stderr}");
    fs::write(serving.mountpoint.join("late"), "text").expect("written");
    let (_, stdout, _) = stage.run(&["ls", "fcm:/late"]);
    assert!(stdout.contains("partitioned"), "new ones are of the new implementation: {stdout}");

    let mut slow = stage
        .refit(&["upgrade", "fcm", "shared", "--rate", "50"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    while stage.run(&["upgrade", "fcm", "--pause"]).0 != 0 {
        std::thread::yield_now();
    }
    stage.refuses(&["upgrade", "fcm", "shared"], "another upgrade of the class is under way");
    let pid = Pid::from_raw(slow.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    assert_eq!(slow.wait().expect("it ends").code(), Some(1));
    // The upgrade is over when it can be paused no more; then everything is as before.
    while stage.run(&["upgrade", "fcm", "--resume"]).0 == 0 {
        std::thread::yield_now();
    }
    let (_, stdout, _) = stage.run(&["--json", "ls", "fcm:*"]);
    assert_eq!(stdout.matches("\"implementation\":\"partitioned\"").count(), 101, "{stdout}");
    stage
        .refuses(&["upgrade", "fxm", "shared"], "no such class; list classes with `refit classes`");
    let (code, stdout, _) = stage.run(&["upgrade", "fcm", "other"]);
    assert!(code == 1 && stdout.contains("there are: shared, partitioned"), "{stdout}");
}

#[test]
fn several_objects_are_swapped_as_one_change() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    for name in ["a", "b", "c"] {
        fs::write(serving.mountpoint.join(name), "text").expect("written");
    }
    let together = ["swap", "fcm:/a", "partitioned", "--together", "--with", "fcm:/[bc]=shared"];
    stage.refuses(&together, "no such object");
    let together = ["--json", "swap", "fcm:/a", "partitioned", "--together", "--with"];
    let (code, stdout, stderr) = stage.run(&[&together[..], &["fcm:/b=partitioned"]].concat());
    assert_eq!((code, stdout.lines().count()), (0, 1), "{stdout}{stderr}");
    assert!(stdout.contains("\"target\":\"fcm:/a, fcm:/b\"") && stdout.contains("\"objects\":2"));
    let (_, stdout, _) = stage.run(&["--json", "ls", "fcm:*"]);
    assert_eq!(stdout.matches("\"implementation\":\"partitioned\"").count(), 2, "{stdout}");
    let twice = ["swap", "fcm:/?", "shared", "--together", "--with", "fcm:/a=shared"];
    let (code, stdout, _) = stage.run(&twice);
    assert!(code == 1 && stdout.contains("it names an object twice"), "{stdout}");
    assert_eq!(stage.run(&["swap", "fcm:/a", "shared", "--with", "fcm:/b=shared"]).0, 2);
}

#[test]
fn objects_are_found_by_class_implementation_and_what_they_stand_on() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    for name in ["a", "b"] {
        fs::write(serving.mountpoint.join(name), "text").expect("written");
    }
    assert_eq!(stage.run(&["swap", "fcm:/a", "partitioned"]).0, 0);
    let names = |args: &[&str]| -> Vec<String> {
        let (_, stdout, _) = stage.run(&[&["--json", "ls"], args].concat());
        let name = |line: &str| {
            let object: serde_json::Value = serde_json::from_str(line).expect("a JSON object");
            object["name"].as_str().expect("a name").to_owned()
        };
        stdout.lines().map(name).collect()
    };
    let memory = format!("pm:{}", serving.mountpoint.display());
    assert_eq!(names(&["--class", "fcm"]), ["fcm:/a", "fcm:/b"]);
    assert_eq!(names(&["--implementation", "partitioned"]), ["fcm:/a"]);
    assert_eq!(names(&["--on", &memory]), ["fcm:/a", "fcm:/b"]);
    let policy = format!("policy:{}", serving.mountpoint.display());
    assert_eq!(names(&["--under", "fcm:/b"]), ["fr:/b", &memory, &policy]);
    assert_eq!(names(&["--on", "fr:/a", "--under", "fcm:/b"]), [""; 0]);
    stage.refuses(&["ls", "--on", "fr:/c"], "no such object");
    let (_, stdout, _) = stage.run(&["show", "fcm:/a"]);
    let drawn = format!(
        "  fcm:/a  partitioned\n  ├─ fr → fr:/a  host\n  └─ pm → {memory}  sweep\n     └─ policy → {policy}  clock\n"
    );
    assert!(stdout.contains(&drawn), "{stdout}");
    let (_, stdout, _) = stage.run(&["show", &memory]);
    assert!(stdout.ends_with("  used by fcm:/a, fcm:/b\n"), "{stdout}");
}

#[test]
fn a_swap_on_probation_stays_or_goes_back() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    fs::write(serving.mountpoint.join("a"), "text").expect("written");
    let on = |until: &str| {
        stage.run(&["swap", "fcm:/a", "partitioned", "--probation", "100ms", "--until", until])
    };
    let (code, stdout, _) = on("calls > 1000000");
    assert!(
        code == 1 && stdout.contains("on probation: calls > 1000000 does not hold"),
        "{stdout}"
    );
    assert!(stage.run(&["ls", "fcm:/a"]).1.contains("shared"));
    let (code, stdout, stderr) = on("errors == 0 && p99 < 10 × before || calls < 10");
    assert!(code == 0, "{stdout}{stderr}");
    assert!(stage.run(&["ls", "fcm:/a"]).1.contains("partitioned"));
    let (code, _, stderr) = on("p98 < 3");
    assert!(code == 1 && stderr.contains("there is no measure \"p98\""), "{stderr}");
    assert_eq!(stage.run(&["swap", "fcm:/a", "shared", "--probation", "1s"]).0, 2);
}
