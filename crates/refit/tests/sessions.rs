//! `refit show FILE`: the processes that use a file of a mount, and how the kernel accesses it.

mod stage;

use std::fs::{self, File};
use std::process::{Command, Stdio, id};

use serde_json::{Value, json};
use stage::Stage;
use stage::running::until;

fn shown(stage: &Stage, path: &str) -> Value {
    let (code, stdout, stderr) = stage.run(&["--json", "show", path]);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("one JSON object")
}

#[test]
fn a_file_is_shown_with_the_processes_that_use_it() {
    for (mode, passed_through) in [("kernel", false), ("passthrough", true)] {
        let stage = Stage::new();
        let Some(serving) = stage.serve_with(&["--cache", mode]) else { return };
        let path = serving.mountpoint.join("a");
        fs::write(&path, vec![1; 8192]).expect("written");
        let text = path.to_str().expect("UTF-8");
        let none = shown(&stage, text);
        assert_eq!((&none["session"], &none["opens"]), (&Value::Null, &json!(0)), "{none}");

        let open = File::options().write(true).open(&path).expect("it opens");
        // A child that another test is just starting has it as well, until it executes its program.
        let mut one = Value::Null;
        until("nobody else has it", || {
            one = shown(&stage, text);
            one["processes"].as_array().is_some_and(|all| all.len() == 1)
        });
        assert_eq!((&one["session"], &one["writers"]), (&json!("exclusive"), &json!(1)), "{one}");
        assert_eq!(one["processes"][0]["pid"], id(), "{one}");
        // Not every file system of a source can be passed through.
        let passed = passed_through && !is_stacked(&stage);
        assert_eq!(one["passed_through"], passed, "{one}");
        let cached = if passed { "source" } else { "kernel" };
        assert_eq!(one[cached]["cached"], 8192, "{one}");

        let mut other = Command::new("sleep")
            .arg("600")
            .stdin(File::open(&path).expect("it opens"))
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let both = shown(&stage, text);
        let (_, lines, _) = stage.run(&["show", text]);
        other.kill().expect("it runs");
        other.wait().expect("it has ended");
        assert_eq!((&both["session"], &both["opens"]), (&json!("shared"), &json!(2)), "{both}");
        assert!(lines.contains("shared: 2 opens, 1 for writing, by "), "{lines}");
        assert!(lines.contains(&format!("sleep ({})", other.id())), "{lines}");
        drop(open);
        // A file counts as open until the kernel has told the server of the close.
        until("the close", || shown(&stage, text)["session"].is_null());
    }
}

/// Returns whether the file system of the source cannot be passed through.
fn is_stacked(stage: &Stage) -> bool {
    const OVERLAY: i64 = 0x794c_7630;
    rustix::fs::statfs(stage.path("source")).is_ok_and(|system| system.f_type == OVERLAY)
}

#[test]
fn the_cache_of_a_file_follows_it() {
    let stage = Stage::new();
    let Some(serving) = stage.serve_with(&["--cache", "direct"]) else { return };
    let path = serving.mountpoint.join("a");
    fs::write(&path, "text").expect("written");
    let _open = File::open(&path).expect("it opens");
    let (code, lines, stderr) = stage.run(&["show", path.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{stderr}");
    assert!(lines.contains("served; each read and write is a request"), "{lines}");
    assert!(lines.contains("\nfcm:/a\n"), "{lines}");
}

#[test]
fn what_is_no_file_of_a_mount_is_refused() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let of = |name: &str| serving.mountpoint.join(name).to_str().expect("UTF-8").to_owned();
    fs::create_dir(of("directory")).expect("made");
    stage.refuses(&["show", &of("directory")], "it is no regular file of that mount");
    stage.refuses(&["show", &of("missing")], "No such file");
    let source = stage.path("source");
    stage.refuses(&["show", source.to_str().expect("UTF-8")], "no instance serves it");
}
