//! Tests of `refit record`, and of its traces in `refit report`, over a real mount and real
//! programs.

mod stage;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use refit_instance::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use stage::{Serving, Stage};

/// A timeout that is reached only if the test fails.
const LONG: Duration = Duration::from_secs(60);

/// Returns a report, one object per line.
fn report(stage: &Stage, trace: &Path) -> Vec<Value> {
    let (code, stdout, stderr) = stage.run(&["report", "--json", trace.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the number of intervals of an event.
fn count(report: &[Value], name: &str) -> u64 {
    let event = report.iter().find(|line| line["type"] == "event" && line["name"] == name);
    event.and_then(|event| event["count"].as_u64()).unwrap_or(0)
}

fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < end, "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn a_command_on_a_mount_its_requests_and_the_swaps_under_it_are_in_one_trace() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let (file, trace) = (serving.mountpoint.join("file"), stage.path("trace"));
    fs::write(stage.path("source").join("file"), vec![7; 1 << 20]).expect("written");
    let script = "cat \"$1\" > /dev/null && \"$2\" swap 'fcm:*' partitioned";
    let output = stage
        .refit(&["record", "-o"])
        .arg(&trace)
        .args(["--", "sh", "-c", script, "sh"])
        .args([file.as_os_str(), env!("CARGO_BIN_EXE_refit").as_ref()])
        .output()
        .expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("records in "), "{said}");
    let report = report(&stage, &trace);
    let header = &report[0];
    assert_eq!((&header["type"], &header["ended_in_peace"]), (&"trace".into(), &true.into()));
    for name in ["fuse::request", "FileCache::read", "FileCache::fault"] {
        assert!(count(&report, name) > 0, "{name}: {report:#?}");
    }
    for name in ["change", "change::prepare", "change::transfer", "change::commit"] {
        assert_eq!(count(&report, name), 1, "{name}: {report:#?}");
    }
    if stderr.contains("no context switches") {
        println!("skipped: no context switches here: {stderr}");
    } else {
        assert!(report.iter().any(|line| line["type"] == "switch"), "{report:#?}");
    }
}

#[test]
fn ctrl_c_ends_a_recording_and_the_instance_goes_on() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let trace = stage.path("trace");
    let pid = serving.pid().as_raw_nonzero().to_string();
    let record = || {
        let mut refit = stage.refit(&["record", "-p", &pid, "-o"]);
        let child = refit.arg(&trace).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        child.expect("it starts")
    };
    let child = record();
    until(|| stage.run(&["instruments"]).0 == 0);
    let (code, stdout, stderr) = stage.run(&["instruments", "fuse::*", "--suspend", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let instrument: Value = serde_json::from_str(&stdout).expect("there is one");
    assert_eq!(instrument["name"], "fuse::request");
    assert_eq!(instrument["suspended"], serde_json::json!(["itself"]));
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(report(&stage, &trace)[0]["ended_in_peace"], true);
    stage.refuses(&["instruments"], "no recording is in progress");

    // A killed recorder leaves a readable trace, and an instance that serves and can be recorded.
    fs::remove_file(&trace).expect("it is there");
    let mut child = record();
    until(|| trace.exists());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    fs::write(serving.mountpoint.join("after"), "still here").expect("it serves");
    let (code, _, stderr) = stage.run(&["record", "-p", &pid, "--for", "1ms", "-o", "/dev/null"]);
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn what_cannot_be_recorded_is_refused_in_one_line() {
    let stage = Stage::new();
    let trace = stage.path("trace");
    let trace = trace.to_str().expect("UTF-8");
    // Above the highest process number of Linux.
    stage.refuses(&["record", "-p", "8388608", "-o", trace], "there is no process 8388608");
    stage.refuses(&["record", "-o", trace], "no instance is running");
    stage.refuses(&["record", "-o", "/nonexistent/trace", "--", "true"], "/nonexistent/trace");
    stage.refuses(&["record", "-o", trace, "--", "/nonexistent/program"], "/nonexistent/program");
    let (code, stdout, stderr) = stage.run(&["record", "-o", trace, "--", "sh", "-c", "exit 3"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stdout.contains("in ") && stderr.contains("exit status: 3"), "{stdout}{stderr}");
}

#[test]
fn a_check_tells_what_recording_costs() {
    let stage = Stage::new();
    let trace = stage.path("trace");
    let trace = trace.to_str().expect("UTF-8");
    let args = ["record", "--check", "--rounds", "2", "--json", "-o", trace, "--", "true"];
    let (code, stdout, stderr) = stage.run(&args);
    assert_eq!(code, 0, "{stderr}");
    let found: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(found["rounds"], 2);
    assert!(found["without_ns"].as_u64() > Some(0) && found["with_ns"].as_u64() > Some(0));
}

/// Returns the contents of a trace, one object per record.
fn records(stage: &Stage, trace: &Path) -> Vec<Value> {
    let (code, stdout, stderr) =
        stage.run(&["export", trace.to_str().expect("UTF-8"), "--to", "ndjson"]);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the threads that have records.
fn threads(records: &[Value]) -> std::collections::BTreeSet<u64> {
    records.iter().filter_map(|record| record["thread"].as_u64()).filter(|id| *id != 0).collect()
}

/// Returns the memory of sessions that is locked into an instance, in KiB.
fn locked(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmLck:")).expect("Linux tells it");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// A recording of one process that continues until it is ended.
struct Recording {
    child: Child,
    trace: PathBuf,
}

impl Recording {
    /// Begins a recording, and waits until the instance takes part in `then` recordings.
    fn begin(stage: &Stage, pid: &str, name: &str, then: usize) -> Self {
        let trace = stage.path(name);
        let mut refit = stage.refit(&["record", "-p", pid, "--no-switches", "-o"]);
        let child = refit.arg(&trace).stdout(Stdio::null()).spawn().expect("it starts");
        let recording = Self { child, trace };
        let socket = stage.path("sockets").join(format!("{pid}.sock"));
        until(|| {
            let client = Client::new(&socket).expect("it answers");
            client.recorded().expect("it answers").len() == then
        });
        recording
    }

    fn end(mut self) -> PathBuf {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        assert!(self.child.wait().expect("it ends").success());
        self.trace
    }
}

/// Stores `count` files, each of which is synced once.
fn store(serving: &Serving, name: &str, count: usize) {
    for one in 0..count {
        let path = serving.mountpoint.join(format!("{name}{one}"));
        let mut file = fs::File::create(path).expect("it serves");
        file.write_all(b"some").and_then(|()| file.sync_all()).expect("there is room");
    }
}

#[test]
fn an_instance_is_recorded_by_several_at_once_and_each_has_all_of_its_time() {
    const FILES: usize = 20;
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let pid = serving.pid().as_raw_nonzero().to_string();
    let before = locked(&pid);
    let first = Recording::begin(&stage, &pid, "first", 1);
    let of_one = locked(&pid);
    store(&serving, "one", FILES);
    let second = Recording::begin(&stage, &pid, "second", 2);
    store(&serving, "both", FILES);
    let first = first.end();
    assert_eq!(locked(&pid), of_one, "the memory of the first is given back, of the second not");
    store(&serving, "other", FILES);
    let second = second.end();
    assert_eq!(locked(&pid), before);
    for trace in [&first, &second] {
        let report = report(&stage, trace);
        assert_eq!(report[0]["ended_in_peace"], true);
        assert_eq!(report[0]["lost"]["full"], 0, "{}", report[0]);
        assert_eq!(count(&report, "FileCache::sync"), 2 * FILES as u64, "{}", trace.display());
    }
}

#[test]
fn a_recorder_that_is_killed_leaves_others_alone_and_its_place_to_the_next() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let pid = serving.pid().as_raw_nonzero().to_string();
    let before = locked(&pid);
    let other = Recording::begin(&stage, &pid, "other", 1);
    let mut killed = Recording::begin(&stage, &pid, "killed", 2);
    killed.child.kill().and_then(|()| killed.child.wait()).expect("it runs");
    // The ended recording does not count, and its memory is released.
    let next = Recording::begin(&stage, &pid, "next", 2);
    store(&serving, "file", 1);
    for recording in [next, other] {
        assert_eq!(count(&report(&stage, &recording.end()), "FileCache::sync"), 1);
    }
    assert_eq!(locked(&pid), before);
}

#[test]
fn a_command_is_recorded_although_too_many_others_record_an_instance() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let pid = serving.pid().as_raw_nonzero().to_string();
    let others: Vec<Recording> =
        (1..=8).map(|n| Recording::begin(&stage, &pid, &format!("trace{n}"), n)).collect();
    let last = stage.path("last");
    let to = last.to_str().expect("UTF-8");
    let (code, stdout, stderr) = stage.run(&["record", "-o", to, "--", "echo", "it ran"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("it ran\n"), "{stdout}");
    let says = format!(
        "instance {pid} is not recorded: 8 other recordings of the instance are in progress"
    );
    assert!(stderr.contains(&says), "{stderr}");
    assert_eq!(report(&stage, &last)[0]["ended_in_peace"], true);
    // If there is nothing else to record, that is a refusal.
    stage.refuses(
        &["record", "-o", to, "--for", "1ms"],
        "other recordings of the instance are in progress",
    );
    others.into_iter().for_each(|one| drop(one.end()));
}

#[test]
fn an_instance_keeps_no_memory_of_a_recording_that_has_ended() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let pid = serving.pid().as_raw_nonzero().to_string();
    let before = locked(&pid);
    for _ in 0..3 {
        let (code, _, stderr) =
            stage.run(&["record", "-p", &pid, "--for", "1ms", "-o", "/dev/null"]);
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(locked(&pid), before);
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
        assert!(!maps.contains("refit-session"), "{maps}");
    }
    fs::write(serving.mountpoint.join("after"), "still here").expect("it serves");
}

#[test]
fn with_a_process_only_that_process_is_recorded_and_its_threads_are_counted() {
    let stage = Stage::new();
    let mut busy = std::process::Command::new("sh")
        .args(["-c", "while :; do sleep 0.001; done"])
        .spawn()
        .expect("it starts");
    let trace = stage.path("trace");
    let (pid, to) = (busy.id().to_string(), trace.to_str().expect("UTF-8"));
    let (code, _, stderr) = stage.run(&["record", "-p", &pid, "--for", "300ms", "-o", to]);
    busy.kill().expect("it runs");
    busy.wait().expect("it ends");
    assert_eq!(code, 0, "{stderr}");
    if stderr.contains("no context switches") {
        println!("skipped: no context switches here: {stderr}");
        return;
    }
    let threads = threads(&records(&stage, &trace));
    assert!(threads.contains(&u64::from(busy.id())), "{threads:?}");
    // This thread waited for the recorder, so it released the processor and got it again meanwhile.
    let own = u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    assert!(!threads.contains(&own), "{threads:?} has {own}");
    assert_eq!(report(&stage, &trace)[0]["threads"], threads.len());
}

#[test]
fn a_file_that_cannot_be_written_and_one_that_cannot_be_read_end_with_an_error() {
    let stage = Stage::new();
    stage.refuses_after_output(&["record", "-o", "/dev/full", "--", "true"], "/dev/full");
    let pipe = stage.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("made");
    let pipe = pipe.to_str().expect("UTF-8");
    for args in [&["report", pipe][..], &["export", pipe, "--to", "ndjson"]] {
        stage.refuses(args, "it is not a regular file");
    }
    stage.refuses(&["funcs", "-p", pipe, "*"], "not a regular file");
}
