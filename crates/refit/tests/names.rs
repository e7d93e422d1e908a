//! Tests of names as people see and type them: any bytes, on any of several mounts.

mod stage;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use serde_json::Value;

use stage::Stage;
use stage::running::{Running, until};

/// A name that forges a row, clears the screen and sets the title if it is printed unescaped, and
/// that is not UTF-8.
const HOSTILE: &[u8] = b"a\nshared  0  fcm:/forged\x1b[2J\x1b]0;title\x07\xff\\";

/// The same name, as it is shown and typed.
const SHOWN: &str = r"fcm:/a\x0ashared  0  fcm:/forged\x1b[2J\x1b]0;title\x07\xff\\";

#[test]
fn a_name_of_any_bytes_is_shown_on_one_line_and_can_be_typed_as_it_is_shown() {
    let stage = Stage::new();
    let Some(serving) = stage.serve() else { return };
    let path = serving.mountpoint.join(OsStr::from_bytes(HOSTILE));
    fs::create_dir(path.parent().expect("it has one")).expect("made");
    fs::write(&path, "x").expect("written");
    let _open = fs::File::open(&path).expect("it is there");
    for args in [&["ls"][..], &["ls", SHOWN], &["show", SHOWN], &["top", "--times", "1"]] {
        let (code, stdout, stderr) = stage.run(args);
        assert_eq!((code, &*stderr), (0, ""), "{args:?}");
        assert!(stdout.contains(SHOWN), "{args:?}: {stdout}");
        let acts = |c: char| c.is_control() && c != '\n';
        assert!(!stdout.contains(acts), "{args:?}: {stdout:?}");
        assert!(!stdout.lines().any(|line| line.ends_with("fcm:/forged")), "{args:?}: {stdout}");
    }
    let (code, stdout, _) = stage.run(&["ls", "--json", SHOWN]);
    let object: Value = serde_json::from_str(&stdout).expect("one JSON object");
    assert_eq!((code, &object["name"]), (0, &SHOWN.into()));
    for args in [
        &["swap", SHOWN, "partitioned"][..],
        &["wrap", SHOWN, "count"],
        &["unwrap", SHOWN, "count"],
        &["cache", SHOWN, "direct"],
    ] {
        let (code, stdout, stderr) = stage.run(args);
        assert_eq!((code, &*stderr), (0, ""), "{args:?}: {stdout}");
    }
    let (_, stdout, _) = stage.run(&["cache", SHOWN, "kernel", "--json"]);
    assert!(stdout.contains("\"files\":1"), "{stdout}");
    // An error repeats the request, and does not act on a terminal either.
    let (code, _, stderr) = stage.run(&["swap", "fcm:/\x1b[31mno", "partitioned"]);
    assert_eq!(code, 1);
    assert!(!stderr.contains('\x1b') && stderr.contains(r"\x1b[31mno"), "{stderr:?}");
}

#[test]
fn the_command_line_of_a_program_forges_no_row() {
    let stage = Stage::new();
    let command = ["sh", "-c", "sleep 60; exit", "name\n  1  \x1b[2J forged"];
    let running = Running::start(&stage, &[], &command, "sh");
    until("the list", || {
        let (_, stdout, _) = stage.run(&["ps"]);
        stdout.contains("forged") && {
            assert!(!stdout.contains('\x1b'), "{stdout:?}");
            assert!(!stdout.lines().any(|line| line.starts_with("  1 ")), "{stdout}");
            true
        }
    });
    drop(running);
}

/// Two mounts have a file of the same name: this is reported, and one of them is selected.
#[test]
fn a_name_that_several_mounts_have_is_refused_until_one_is_chosen() {
    let stage = Stage::new();
    let Some(_one) = stage.serve() else { return };
    let other = stage.path("other");
    for name in ["other", "elsewhere"] {
        fs::create_dir(stage.path(name)).expect("made");
    }
    let two = Command::new(env!("CARGO_BIN_EXE_refit"))
        .env("REFIT_RUNTIME_DIR", stage.path("sockets"))
        .arg("mount")
        .args([stage.path("elsewhere"), other.clone()])
        .spawn()
        .expect("it starts");
    let _two = stage::Serving { child: two, mountpoint: other.clone() };
    until("the other mount", || stage::mounted(&other));
    let mounts = [stage.path("mnt"), other].map(|path| path.canonicalize().expect("it is there"));
    let files = mounts.each_ref().map(|mount| {
        fs::write(mount.join("x"), "x").expect("written");
        fs::File::open(mount.join("x")).expect("it is there")
    });
    for args in [
        &["swap", "fcm:/x", "partitioned"][..],
        &["wrap", "fcm:/x", "count"],
        &["unwrap", "fcm:/x", "count"],
    ] {
        stage.refuses(args, "2 mounts have an object of this name");
    }
    let (_, stdout, _) = stage.run(&["ls", "fcm:/x"]);
    let shown = |mount: &std::path::Path| stdout.contains(mount.to_str().expect("UTF-8"));
    assert!(stdout.contains("MOUNT") && mounts.iter().all(|mount| shown(mount)), "{stdout}");
    let first = mounts[0].to_str().expect("UTF-8");
    let (code, _, stderr) = stage.run(&["swap", "fcm:/x", "partitioned", "--mount", first]);
    assert_eq!((code, &*stderr), (0, ""));
    let (_, stdout, _) = stage.run(&["ls", "fcm:/x", "--json"]);
    let served: Vec<(bool, Value)> = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a JSON object"))
        .map(|object| (object["mount"] == first, object["implementation"].clone()))
        .collect();
    for (chosen, implementation) in served {
        assert_eq!(implementation, if chosen { "partitioned" } else { "shared" });
    }
    let (_, stdout, _) = stage.run(&["ls", "--mount", first, "fr:*"]);
    assert!(stdout.contains("fr:/x") && !stdout.contains("MOUNT"), "{stdout}");
    // A pattern means all of them.
    let (code, _, stderr) = stage.run(&["swap", "fcm:/x*", "shared"]);
    assert_eq!((code, &*stderr), (0, ""));
    drop(files);
}
