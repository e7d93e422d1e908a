//! Tests of `refit record --stacks`: where threads stand while they have no processor.

mod stage;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use stage::Stage;

/// A timeout that is reached only if the test fails.
const LONG: Duration = Duration::from_secs(60);

/// Builds the program without frame pointers.
fn built(stage: &Stage) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/waits.c");
    let program = stage.path("waits");
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-pthread", "-o"];
    let built = Command::new("cc").args(flags).args([&program, &source]).status();
    assert!(built.expect("a compiler").success());
    program
}

/// Returns the lines of a report; `None` if stacks cannot be recorded on this host.
fn recorded(stage: &Stage, args: &[&str]) -> Option<Vec<Value>> {
    let trace = stage.path("trace");
    let trace = trace.to_str().expect("UTF-8");
    let (code, _, stderr) = stage.run(&[&["record", "--stacks", "-o", trace], args].concat());
    assert_eq!(code, 0, "{stderr}");
    if stderr.contains("no stacks") {
        println!("skipped: no stacks of switches here: {stderr}");
        return None;
    }
    Some(report(stage, trace))
}

fn report(stage: &Stage, trace: &str) -> Vec<Value> {
    let (code, stdout, stderr) = stage.run(&["report", "--json", trace]);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the functions of a stack, the innermost first.
fn functions(off: &Value) -> Vec<&str> {
    let frames = off["stack"].as_array().expect("a stack");
    let functions = frames.iter().flat_map(|frame| frame["functions"].as_array().expect("a list"));
    functions.map(|function| function["name"].as_str().expect("a name")).collect()
}

/// Returns the waits on whose stacks these functions follow one another, innermost first; others
/// can be between them.
fn waits<'r>(report: &'r [Value], wanted: &[&str]) -> Vec<&'r Value> {
    let off = report.iter().filter(|line| line["type"] == "off-cpu" && line["preempted"] == false);
    off.filter(|off| {
        let mut functions = functions(off).into_iter();
        wanted.iter().all(|name| functions.any(|function| function == *name))
    })
    .collect()
}

fn sum(waits: &[&Value], field: &str) -> f64 {
    waits.iter().map(|wait| wait[field].as_f64().expect("a number")).sum()
}

#[test]
fn a_command_shows_where_its_threads_and_children_wait_and_who_has_called_there() {
    let stage = Stage::new();
    let program = built(&stage);
    let program = program.to_str().expect("UTF-8");
    let Some(report) = recorded(&stage, &["--", program, "20"]) else { return };
    let whole = report[0]["lost"]["full"] == 0;
    let deep = waits(&report, &["doze", "deep", "main"]);
    assert!(!deep.is_empty(), "{report:#?}");
    for wait in &deep {
        let functions = functions(wait);
        assert_eq!(functions.iter().filter(|name| **name == "deep").count(), 11, "{functions:?}");
        // The outermost frames are those of the C library.
        let last = functions.last().expect("there are some");
        assert!(last.contains("_start"), "{functions:?}");
        let frames = wait["stack"].as_array().expect("a stack");
        let main = frames.iter().find(|frame| frame["functions"][0]["name"] == "main");
        let source = main.expect("it is there")["functions"][0]["source"].as_str();
        assert!(source.is_some_and(|source| source.contains("waits.c:")), "{source:?}");
    }
    if whole {
        assert_eq!(sum(&deep, "count"), 20.0, "each sleep is one wait");
        assert!(sum(&deep, "total_ns") > 20.0 * 1.5e6, "of two milliseconds");
    }
    // A thread that waits for the lock all the time, and a child that has ended.
    let lock = waits(&report, &["take", "want"]);
    assert!(!whole || sum(&lock, "total_ns") > 20.0 * 1.5e6, "{lock:?}");
    assert!(!whole || !waits(&report, &["doze", "in_child", "main"]).is_empty(), "{report:#?}");
    // The recorder's own waits are not among them.
    assert!(waits(&report, &["main"]).iter().all(|wait| !functions(wait).contains(&"follow")));

    let trace = stage.path("trace");
    let trace = trace.to_str().expect("UTF-8");
    let (code, folded, stderr) = stage.run(&["export", trace, "--to", "folded", "--off-cpu"]);
    assert_eq!(code, 0, "{stderr}");
    let calls = ";main (waits)".to_owned() + &";deep (waits)".repeat(11) + ";doze (waits);";
    assert!(folded.lines().any(|line| line.starts_with("waits;") && line.contains(&calls)));
    let (code, text, stderr) = stage.run(&["report", trace]);
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("Off the processors, by stack") && text.contains("doze (waits)"));
}

#[test]
fn a_process_is_examined_while_it_runs_and_a_killed_recorder_leaves_addresses() {
    let stage = Stage::new();
    let program = built(&stage);
    let mut running = Command::new(&program).arg("1000000").spawn().expect("it starts");
    let pid = running.id().to_string();
    let done = recorded(&stage, &["-p", &pid, "--for", "300ms"]);
    if let Some(report) = &done {
        assert!(!waits(report, &["doze", "deep", "main"]).is_empty(), "{report:#?}");
        let trace = stage.path("killed");
        let mut recorder = stage.refit(&["record", "--stacks", "-p", &pid, "-o"]);
        let recorder = recorder.arg(&trace).stdout(Stdio::null()).stderr(Stdio::null());
        let mut recorder = recorder.spawn().expect("it starts");
        let trace = trace.to_str().expect("UTF-8");
        let end = Instant::now() + LONG;
        // What has been written up to here is in the trace.
        while !Path::new(trace).exists()
            || !stage.run(&["report", trace]).1.contains("Off the processors")
        {
            assert!(Instant::now() < end, "it does not come");
        }
        recorder.kill().expect("it runs");
        recorder.wait().expect("it ends");
        let report = self::report(&stage, trace);
        assert!(report.iter().any(|line| line["type"] == "off-cpu"), "{report:#?}");
        let (_, text, _) = stage.run(&["report", trace]);
        assert!(text.contains("waits+0x"), "{text}");
    }
    running.kill().expect("it runs");
    running.wait().expect("it ends");
}

#[test]
fn stacks_of_a_probe_have_source_lines_when_the_program_has_ended() {
    let stage = Stage::new();
    let program = built(&stage);
    let program = program.to_str().expect("UTF-8");
    let probe = "uprobe:waits:doze { @[ustack] = count() }";
    let (code, stdout, stderr) = stage.run(&["probe", "-e", probe, "--", program, "3"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("waits.c:"), "{stdout}");
}

#[test]
fn what_cannot_be_recorded_of_stacks_is_refused() {
    let stage = Stage::new();
    for (args, why) in [
        (&["record", "--stacks", "--stack-bytes", "100M", "--", "true"][..], "512 to 63K"),
        (&["record", "--stack-bytes", "8K", "--", "true"], "--stacks"),
        (&["record", "--stacks", "--no-switches", "--", "true"], "--no-switches"),
        (&["export", "trace", "--to", "perfetto", "--off-cpu"], "--to folded"),
    ] {
        let (code, _, stderr) = stage.run(args);
        assert!(code == 2 && stderr.contains(why), "{args:?}: {stderr}");
    }
}

#[test]
fn threads_that_end_at_once_have_the_names_of_their_creators() {
    let stage = Stage::new();
    let program = stage.path("brief");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/brief.c");
    let built =
        Command::new("cc").args(["-O1", "-pthread", "-o"]).args([&program, &source]).status();
    assert!(built.expect("a compiler").success());
    let program = program.to_str().expect("UTF-8");
    let Some(report) = recorded(&stage, &["--", program, "100"]) else { return };
    if report[0]["lost"]["full"] != 0 {
        println!("skipped: records were lost");
        return;
    }
    let trace = stage.path("trace");
    let trace = trace.to_str().expect("UTF-8");
    let (code, folded, stderr) = stage.run(&["export", trace, "--to", "folded", "--off-cpu"]);
    assert_eq!(code, 0, "{stderr}");
    let of = |name: &str| folded.lines().filter(|line| line.starts_with(name)).count();
    assert!(of("brief") > 0 && of("renamed") > 0, "{folded}");
    assert_eq!(of("thread "), 0, "{folded}");
}
