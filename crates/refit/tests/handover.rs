//! `refit handover`: servers that are replaced by another program again and again while programs
//! use the mount.

mod load;
mod stage;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use load::Load;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stage::running::until;
use stage::{Serving, Stage};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Hands over to this program and returns what was printed.
fn hand_over(stage: &Stage, serving: &Serving) -> Value {
    let (code, stdout, stderr) =
        stage.run(&["--json", "handover", text(&serving.mountpoint), "--timeout", "60s"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    serde_json::from_str(&stdout).expect("a JSON object")
}

/// Returns the process that serves.
fn server(stage: &Stage, serving: &Serving) -> Pid {
    let instance = serving.pid().as_raw_nonzero().to_string();
    let socket = stage.path("sockets").join(format!("{instance}.sock"));
    let client = refit_instance::Client::new(&socket).expect("descriptors");
    let server = client.health().expect("it answers").server;
    Pid::from_raw(server.cast_signed()).expect("it is no zero")
}

#[test]
fn what_is_open_stays_open_and_everything_keeps_its_number() {
    let stage = Stage::new();
    for cache in ["auto", "direct", "passthrough", "exclusive"] {
        let Some(mut serving) = stage.serve_with(&["--cache", cache]) else { return };
        let mut servers = vec![server(&stage, &serving)];
        let (contents, open) = load::open_files_stay(&serving.mountpoint, |round| {
            let told = hand_over(&stage, &serving);
            assert_eq!(told["instance"], u64::from(serving.child.id()));
            assert_eq!(told["last"]["number"], round + 1);
            assert_eq!(told["last"]["state"], "committed");
            let now = server(&stage, &serving);
            assert!(!servers.contains(&now), "another process serves");
            servers.push(now);
        });
        drop(open);
        // The process that was started passes the signal on, and ends as the last server does.
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), 0);
        for server in servers {
            until("its end", || rustix::process::test_kill_process(server).is_err());
        }
        let written = fs::read_to_string(stage.path("source/file")).unwrap();
        assert_eq!(written, contents);
        fs::remove_file(stage.path("source/file")).unwrap();
    }
}

#[test]
fn no_request_is_lost_or_executed_twice_beside_crashes() {
    let stage = Stage::new();
    for cache in ["auto", "direct", "passthrough", "exclusive"] {
        let Some(mut serving) = stage.serve_with(&["--cache", cache]) else { return };
        let load = Load::start(&serving.mountpoint, cache);
        for round in 0..15 {
            hand_over(&stage, &serving);
            if round % 3 == 2 {
                let ended = server(&stage, &serving);
                kill_process(ended, Signal::KILL).expect("it runs");
                until("another server", || server(&stage, &serving) != ended);
            }
        }
        let expected = load.end();
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), 0);
        expected.is_in(&stage.path("source"));
    }
}

#[test]
fn pages_that_were_not_stored_are_taken_over() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--cache", "direct"]) else { return };
    let file = serving.mountpoint.join("file");
    let contents = load::unstored_pages_stay(&file, || drop(hand_over(&stage, &serving)));
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    assert!(fs::read(stage.path("source/file")).unwrap() == contents);
}

/// Writes a program that is run in the place of refit.
fn program(stage: &Stage, text: &str) -> String {
    let path = stage.path("program");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn the_server_goes_on_when_the_new_one_is_broken() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let load = Load::start(&serving.mountpoint, "broken");
    let before = server(&stage, &serving);
    let mountpoint = text(&serving.mountpoint);
    let refuses = |program: &str, timeout: &str, says: &str| {
        let args = ["handover", mountpoint, "--binary", program, "--timeout", timeout];
        stage.refuses(&args, says);
        assert_eq!(server(&stage, &serving), before, "{program}");
    };
    refuses("/nonexistent/refit", "10s", "there is no such program");
    refuses("/etc/passwd", "10s", "not permitted to execute");
    refuses("/bin/false", "10s", "has ended before it could take over");
    let empty = program(&stage, "\u{1}\u{2}");
    refuses(&empty, "10s", "no program of this machine");
    let hangs = program(&stage, "#!/bin/sh\nexec sleep 1000\n");
    refuses(&hangs, "300ms", "was not ready in time");
    // Afterwards it works.
    hand_over(&stage, &serving);
    assert_ne!(server(&stage, &serving), before);
    let expected = load.end();
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    expected.is_in(&stage.path("source"));
}

#[test]
fn what_cannot_be_handed_over_is_refused() {
    let stage = Stage::new();
    let Some(serving) = stage.serve_with(&["--no-hold"]) else { return };
    stage.refuses(&["handover", text(&serving.mountpoint)], "--no-hold");
    stage.refuses(&["handover", "/proc"], "no instance serves /proc");
    stage.refuses(&["take-over", "7"], "take over the mounts of another server");
    drop(serving);
    let Some(mut serving) = stage.serve() else { return };
    serving.signal(Signal::KILL);
    serving.child.wait().expect("it has ended");
    let mountpoint = text(&serving.mountpoint);
    let says = "the process that was started first has ended";
    stage.refuses_after_output(&["handover", mountpoint], says);
    assert_eq!(stage.run(&["umount", mountpoint]).0, 0);
}

/// Returns the implementation and the wrappers of an object.
fn object(stage: &Stage, name: &str) -> (Value, Vec<Value>) {
    let (code, stdout, stderr) = stage.run(&["--json", "ls", name]);
    assert_eq!(code, 0, "{stderr}");
    let object: Value = serde_json::from_str(&stdout).expect("one object");
    let wrappers = object["wrappers"].as_array().expect("a list").iter();
    let wrappers = wrappers.map(|one| serde_json::json!([one["name"], one["options"]]));
    (object["implementation"].clone(), wrappers.collect())
}

#[test]
fn changes_of_objects_and_classes_stay_through_hand_overs_and_crashes() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let at = |name: &str| serving.mountpoint.join(name);
    for name in ["one", "two"] {
        fs::write(at(name), "text").unwrap();
    }
    let run = |args: &[&str]| {
        let (code, stdout, stderr) = stage.run(args);
        assert_eq!(code, 0, "{stdout}{stderr}");
    };
    run(&["cache", "*", "direct"]);
    run(&["swap", "fcm:/one", "partitioned"]);
    run(&["wrap", "fcm:/one", "count"]);
    run(&["wrap", "fcm:/one", "fault", "error=5", "every=1000000"]);
    let one = object(&stage, "fcm:/one");
    assert_eq!((one.0.as_str(), one.1.len()), (Some("partitioned"), 2));
    let same = || {
        assert_eq!(object(&stage, "fcm:/one"), one);
        assert_eq!(fs::read_to_string(at("one")).unwrap(), "text");
    };
    hand_over(&stage, &serving);
    same();
    let ended = server(&stage, &serving);
    kill_process(ended, Signal::KILL).expect("it runs");
    until("another server", || server(&stage, &serving) != ended);
    same();
    // From now on every new cache is of the other implementation.
    fs::read(at("two")).unwrap();
    run(&["upgrade", "fcm", "partitioned"]);
    run(&["swap", "fcm:/two", "shared"]);
    hand_over(&stage, &serving);
    same();
    assert_eq!(object(&stage, "fcm:/two").0, "shared");
    fs::write(at("three"), "text").unwrap();
    assert_eq!(object(&stage, "fcm:/three").0, "partitioned");
    // The mode of the cache was kept, so the server sees every read.
    run(&["wrap", "fcm:/three", "count"]);
    fs::read(at("three")).unwrap();
    let (_, stdout, _) = stage.run(&["--json", "ls", "fcm:/three"]);
    let three: Value = serde_json::from_str(&stdout).expect("one object");
    assert!(three["wrappers"][0]["stats"]["read"].as_u64() > Some(0), "{three}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
}

#[test]
fn the_journal_is_handed_over() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--cache", "direct"]) else { return };
    fs::write(serving.mountpoint.join("file"), "text").unwrap();
    let swap = |to: &str| {
        let (code, stdout, stderr) = stage.run(&["swap", "fcm:/file", to]);
        assert_eq!(code, 0, "{stdout}{stderr}");
    };
    let journal = || {
        let (code, stdout, _) = stage.run(&["--json", "changes"]);
        assert_eq!(code, 0);
        let line = |line: &str| serde_json::from_str::<Value>(line).expect("a JSON object");
        stdout.lines().map(line).collect::<Vec<_>>()
    };
    swap("partitioned");
    let before = journal();
    assert_eq!(before.len(), 1);
    hand_over(&stage, &serving);
    assert_eq!(journal(), before);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
}

/// Some server unmounts, at each instant of a hand-over at which the signal can come.
#[test]
fn a_signal_during_a_hand_over_ends_the_mount() {
    let stage = Stage::new();
    for instant in 0..24 {
        let Some(mut serving) = stage.serve() else { return };
        let name = format!("file-{instant}");
        fs::write(serving.mountpoint.join(&name), "text").unwrap();
        let mut command = stage.refit(&["handover", text(&serving.mountpoint)]);
        let mut handover = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The instants are spread over the hand-over; the test holds for each of them.
        std::thread::sleep(Duration::from_millis(instant * 4));
        serving.signal(Signal::TERM);
        let code = serving.wait();
        let mut said = String::new();
        serving.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(code, 0, "instant {instant}: {said}");
        assert!(!stage::mounted(&serving.mountpoint), "instant {instant}");
        let _ = handover.wait();
        assert_eq!(fs::read_to_string(stage.path("source").join(&name)).unwrap(), "text");
    }
}

/// Returns the words of a line of a unit.
fn words(unit: &str, key: &str) -> Vec<String> {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)).expect(key);
    let mut words = vec![String::new()];
    let (mut quoted, mut characters) = (false, line.chars().peekable());
    while let Some(c) = characters.next() {
        let word = words.last_mut().expect("there is one");
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            '\\' | '%' | '$' => word.push(characters.next().expect("a character follows")),
            c => word.push(c),
        }
    }
    words
}

#[test]
fn the_unit_mounts_and_hands_over() {
    let stage = Stage::new();
    if !stage::can_mount() {
        println!("skipped: no /dev/fuse, or no permission to mount");
        return;
    }
    let (source, mountpoint) = (stage.path("a source"), stage.path("50% $HOME"));
    for directory in [&source, &mountpoint] {
        fs::create_dir(directory).unwrap();
    }
    let (code, unit, stderr) = stage.run(&[
        "install-unit",
        "--print",
        "--",
        text(&source),
        text(&mountpoint),
        "--frames",
        "8M",
    ]);
    assert_eq!(code, 0, "{stderr}");
    let command = |key: &str| {
        let words = words(&unit, key);
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]).env("REFIT_RUNTIME_DIR", stage.path("sockets"));
        command
    };
    let child = command("ExecStart=").stderr(Stdio::null()).spawn().unwrap();
    let mut serving = Serving { child, mountpoint };
    until("the mount", || stage::mounted(&serving.mountpoint));
    fs::write(serving.mountpoint.join("file"), "text").unwrap();
    let before = server(&stage, &serving);
    assert!(command("ExecReload=").status().unwrap().success());
    assert_ne!(server(&stage, &serving), before);
    assert_eq!(fs::read_to_string(serving.mountpoint.join("file")).unwrap(), "text");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    assert_eq!(fs::read_to_string(source.join("file")).unwrap(), "text");
}
