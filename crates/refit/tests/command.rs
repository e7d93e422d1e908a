//! The command as a user meets it: exit codes, one-line errors, and nothing left behind.

mod stage;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use rustix::process::Signal;

use stage::{Serving, Stage, can_mount, mounted};

#[test]
fn without_an_instance_every_command_says_so() {
    let stage = Stage::new();
    for args in [
        &["ls"][..],
        &["show", "fcm:/a"],
        &["swap", "fcm:/a", "shared"],
        &["wrap", "fcm:/a", "count"],
        &["unwrap", "fcm:/a", "--all"],
        &["changes"],
        &["changes", "-f"],
        &["cache", "*", "auto"],
        &["mounts"],
        &["umount", "/mnt"],
        &["ls", "--json"],
    ] {
        stage.refuses(args, "no instance is running; start one with `refit mount");
    }
    stage.refuses(&["ls", "--instance", "1"], "there is no instance 1");
    assert_eq!(stage.sockets(), [""; 0]);
}

#[test]
fn wrong_usage_is_told_from_failure() {
    let stage = Stage::new();
    for args in [
        &[][..],
        &["nonsense"],
        &["mount"],
        &["mount", "/tmp"],
        &["mount", "/a", "/b", "/c"],
        &["mount", "/a", "/b", "--frames", "lots"],
        &["mount", "/a", "/b", "--cache", "never"],
        &["mount", "/a", "/b", "--workers", "0"],
        &["swap", "fcm:/a"],
        &["swap", "fcm:/a", "shared", "--deadline", "soon"],
        &["swap", "fcm:/a", "shared", "partitioned"],
        &["swap", "fcm:/a", "shared", "--for", "1s"],
        &["wrap", "fcm:/a"],
        &["wrap", "fcm:/a", "latency", "method"],
        &["wrap", "fcm:/a", "latency", "method=read", "method=write"],
        &["unwrap", "fcm:/a"],
        &["unwrap", "fcm:/a", "count", "--all"],
        &["show", "fcm:/a", "--every", "1s"],
        &["swap", "fcm:/a", "shared", "--every", "1s", "--dry-run"],
        &["cache", "*", "never"],
        &["ls", "--instance", "me"],
    ] {
        let (code, stdout, stderr) = stage.run(args);
        assert_eq!((code, &*stdout), (2, ""), "{args:?}");
        assert!(!stderr.is_empty(), "{args:?}");
    }
    assert_eq!(stage.sockets(), [""; 0]);
}

#[test]
fn help_has_examples_and_documents_can_be_made() {
    let stage = Stage::new();
    let (code, help, _) = stage.run(&["swap", "--help"]);
    assert_eq!(code, 0);
    assert!(help.contains("Example:\n  refit swap"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let (code, text, _) = stage.run(&["completions", shell]);
        assert_eq!((code, text.contains("doctor")), (0, true), "{shell}");
    }
    let man = stage.path("man");
    let (code, _, stderr) = stage.run(&["man", man.to_str().expect("UTF-8")]);
    assert_eq!((code, &*stderr), (0, ""));
    assert!(man.join("refit-swap.1").exists());
    let file = stage.path("file");
    fs::write(&file, "").expect("written");
    stage.refuses(&["man", file.to_str().expect("UTF-8")], "name a directory");
}

#[test]
fn the_doctor_reports_every_check_to_programs() {
    let stage = Stage::new();
    let (code, stdout, _) = stage.run(&["doctor", "--json"]);
    let findings: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
    assert!(findings.len() >= 12, "{stdout}");
    let missing = |f: &serde_json::Value| f["ok"] == false && f["required"] == true;
    assert_eq!(code, i32::from(findings.iter().any(missing)), "{stdout}");
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let stage = Stage::new();
    let mut child = stage
        .refit(&["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_socket_of_a_dead_instance_is_reported_and_removed() {
    let stage = Stage::new();
    let sockets = stage.path("sockets");
    fs::create_dir(&sockets).expect("made");
    fs::set_permissions(&sockets, fs::Permissions::from_mode(0o700)).expect("closed");
    // The remains of a killed process: a socket without a listener.
    drop(UnixListener::bind(sockets.join("77.sock")).expect("bound"));
    let (code, _, stderr) = stage.run(&["ls"]);
    assert_eq!(code, 1);
    assert!(stderr.starts_with("refit: instance 77 is dead; its socket was removed\n"), "{stderr}");
    assert_eq!(stage.sockets(), [""; 0]);
}

#[test]
fn a_directory_that_others_can_write_is_not_trusted() {
    let stage = Stage::new();
    let sockets = stage.path("sockets");
    fs::create_dir(&sockets).expect("made");
    fs::set_permissions(&sockets, fs::Permissions::from_mode(0o777)).expect("opened");
    stage.refuses(&["ls"], "can be written by others");
    let (source, mnt) = (stage.path("source"), stage.path("mnt"));
    let args = ["mount", source.to_str().expect("UTF-8"), mnt.to_str().expect("UTF-8")];
    stage.refuses(&args, "can be written by others");
    assert!(!mounted(&mnt));
}

#[test]
fn serves_until_it_is_told_to_stop() {
    let stage = Stage::new();
    for signal in [Signal::INT, Signal::TERM] {
        let Some(mut serving) = stage.serve() else { return };
        let pid = serving.pid().as_raw_nonzero().to_string();
        assert_eq!(stage.sockets(), [format!("{pid}.sock")]);
        let (code, stdout, stderr) = stage.run(&["mounts", "--json", "--instance", &pid]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains(&format!("\"instance\":{pid}")), "{stdout}");
        serving.signal(signal);
        assert_eq!(serving.wait(), 0);
        assert!(!mounted(&stage.path("mnt")));
        assert_eq!(stage.sockets(), [""; 0]);
    }
}

#[test]
fn can_be_unmounted_by_name() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    stage.refuses(&["umount", "/nowhere"], "no instance serves it");
    let mnt = stage.path("mnt");
    let (code, stdout, stderr) = stage.run(&["umount", mnt.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.ends_with("is unmounted\n"), "{stdout}");
    assert_eq!(serving.wait(), 0);
    assert_eq!(stage.sockets(), [""; 0]);
}

#[test]
fn top_prints_as_many_tables_as_are_asked_for() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    fs::write(stage.path("mnt").join("watched"), "text").expect("written");
    let (code, stdout, stderr) = stage.run(&["top", "--times", "3", "--every", "20ms"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout.matches("CALLS/S").count(), 3, "{stdout}");
    assert_eq!(stdout.matches("fcm:/watched").count(), 3, "{stdout}");
    let (code, stdout, _) = stage.run(&["top", "--times", "1", "--every", "20ms", "--json"]);
    assert_eq!(code, 0);
    assert!(stdout.lines().any(|line| line.contains("\"name\":\"fcm:/watched\"")), "{stdout}");
    serving.signal(Signal::INT);
    assert_eq!(serving.wait(), 0);
}

#[test]
fn unknown_objects_and_implementations_are_refused() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    stage.refuses(
        &["show", "fcm:/nothing"],
        "show fcm:/nothing: no such object; list objects with `refit ls`",
    );
    stage.refuses(&["ls", "nothing:*"], "no such object");
    stage.refuses(&["swap", "fcm:/nothing", "shared"], "no such object");
    fs::write(stage.path("mnt").join("a"), "text").expect("written");
    stage.refuses(&["swap", "fcm:/a", "paged"], "no implementation is called paged; there are: ");
    stage.refuses(&["swap", "pm:*", "shared"], "no implementation is called shared");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
}

#[test]
fn what_cannot_be_mounted_is_told_in_one_line_and_leaves_nothing() {
    let stage = Stage::new();
    let (source, mnt) = (stage.path("source"), stage.path("mnt"));
    let (source, mnt) = (source.to_str().expect("UTF-8"), mnt.to_str().expect("UTF-8"));
    let missing = stage.path("missing");
    let missing = missing.to_str().expect("UTF-8");
    stage.refuses(&["mount", missing, mnt], "there is no such directory");
    stage.refuses(&["mount", source, missing], "there is no such directory");
    if can_mount() {
        stage.refuses(&["mount", source, mnt, "--implementation", "paged"], "paged");
        stage.refuses(&["mount", source, mnt, "--frames", "4K"], "page frames");
        // The first of two is taken back when the second cannot be mounted.
        stage.refuses(&["mount", source, mnt, missing, mnt], "there is no such directory");
    } else {
        println!("skipped: no /dev/fuse, or no permission to mount");
    }
    assert!(!mounted(&stage.path("mnt")));
    assert_eq!(stage.sockets(), [""; 0]);
}

#[test]
fn a_mount_over_a_mount_is_refused() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let (source, mnt) = (stage.path("source"), stage.path("mnt"));
    let args = ["mount", source.to_str().expect("UTF-8"), mnt.to_str().expect("UTF-8")];
    stage.refuses(&args, "unmount it first");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
}

#[test]
fn a_mount_in_use_is_kept_until_somebody_insists() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let path = stage.path("mnt").join("open");
    fs::write(&path, "text").expect("written");
    let open = fs::File::open(&path).expect("opened");
    stage.refuses(&["umount", stage.path("mnt").to_str().expect("UTF-8")], "it is in use");
    assert!(mounted(&stage.path("mnt")), "it goes on");
    serving.signal(Signal::TERM);
    let stderr = BufReader::new(serving.child.stderr.take().expect("it is piped"));
    let said: Vec<String> = stderr.lines().map_while(Result::ok).take(2).collect();
    assert!(said[0].contains("it is in use") && said[1].contains("still serving"), "{said:?}");
    assert!(mounted(&stage.path("mnt")), "it goes on");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    drop(open);
    assert!(!mounted(&stage.path("mnt")));
    assert_eq!(fs::read_to_string(stage.path("source").join("open")).expect("there"), "text");
    assert_eq!(stage.sockets(), [""; 0]);
}

#[test]
fn ends_with_the_program_that_started_it() {
    let stage = Stage::new();
    if !can_mount() {
        println!("skipped: no /dev/fuse, or no permission to mount");
        return;
    }
    let mut child = stage
        .refit(&["mount", "--until-eof"])
        .args([stage.path("source"), stage.path("mnt")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it can be read");
    assert!(line.contains("Ctrl-C unmounts"), "{line}");
    drop(child.stdin.take());
    let mut serving = Serving { child, mountpoint: stage.path("mnt") };
    assert_eq!(serving.wait(), 0);
    assert!(!mounted(&stage.path("mnt")));
    assert_eq!(stage.sockets(), [""; 0]);
}

#[test]
fn a_killed_instance_is_cleared_away() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--no-hold"]) else { return };
    let pid = serving.pid().as_raw_nonzero().to_string();
    serving.signal(Signal::KILL);
    assert_eq!(serving.wait(), -1);
    let (code, _, stderr) = stage.run(&["mounts"]);
    assert_eq!(code, 1);
    assert!(stderr.contains(&format!("instance {pid} is dead")), "{stderr}");
    assert_eq!(stage.sockets(), [""; 0]);
}
