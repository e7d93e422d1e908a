//! `refit wrap`, `unwrap` and what `show` says of wrappers, over a real mount.

mod stage;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use stage::Stage;

const NAME: &str = "fcm:/some file";

/// A stage with a mount and a file of 64 KiB, read past the kernel.
fn file(stage: &Stage) -> fs::File {
    let path = stage.path("mnt").join("some file");
    fs::write(&path, vec![7; 64 * 1024]).expect("written");
    let (code, _, stderr) = stage.run(&["cache", NAME, "direct"]);
    assert_eq!(code, 0, "{stderr}");
    fs::File::open(path).expect("it is there")
}

fn show(stage: &Stage) -> Value {
    let (code, stdout, stderr) = stage.run(&["show", NAME, "--json"]);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("one JSON object")
}

fn read(file: &fs::File, page: u64) -> std::io::Result<usize> {
    file.read_at(&mut [0; 4096], page * 4096)
}

#[test]
fn a_wrapped_cache_is_watched_and_swapped_and_unwrapped() {
    let stage = Stage::new();
    let Some(_serving) = stage.serve() else { return };
    let file = file(&stage);
    let (code, stdout, stderr) = stage.run(&["wrap", NAME, "count", "--json"]);
    assert_eq!((code, &*stderr), (0, ""));
    let report: Value = serde_json::from_str(&stdout).expect("one JSON object");
    assert_eq!(
        (&report["end"], &report["change"]["mechanism"]),
        (&"committed".into(), &"wrap".into())
    );
    let (code, stdout, stderr) = stage.run(&["wrap", "fcm:*", "sequential", "method=read"]);
    assert_eq!((code, &*stderr), (0, ""));
    for word in
        ["committed", "prepare", "install", "commit", "count(shared) → sequential(count(shared))"]
    {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
    for page in 0..16 {
        assert_eq!(read(&file, page).expect("read"), 4096);
    }
    let (code, _, stderr) = stage.run(&["swap", NAME, "partitioned"]);
    assert_eq!((code, &*stderr), (0, ""), "a wrapped object can be swapped");
    assert_eq!(read(&file, 16).expect("the end of the file"), 0);

    let object = show(&stage);
    assert_eq!(object["implementation"], "partitioned");
    let [count, sequential] = &object["wrappers"].as_array().expect("a list")[..] else {
        panic!("{object}")
    };
    assert_eq!((&count["name"], &sequential["options"]), (&"count".into(), &"method=read".into()));
    assert!(count["stats"]["read"].as_u64() >= Some(16), "{count}");
    assert!(sequential["stats"]["following"].as_u64() >= Some(15), "{sequential}");
    let (_, stdout, _) = stage.run(&["show", NAME]);
    for word in ["sequential method=read", "following_percent", "run, accesses", "count"] {
        let shown = if word.ends_with("percent") { "following  " } else { word };
        assert!(stdout.contains(shown), "{shown}: {stdout}");
    }
    let (_, stdout, _) = stage.run(&["ls", NAME]);
    assert!(stdout.contains("sequential(count(partitioned))"), "{stdout}");

    let number = count["id"].to_string();
    let (code, _, stderr) = stage.run(&["unwrap", NAME, &number]);
    assert_eq!((code, &*stderr), (0, ""));
    let (code, _, stderr) = stage.run(&["unwrap", "*", "--all"]);
    assert_eq!((code, &*stderr), (0, ""));
    assert_eq!(show(&stage)["wrappers"], Value::Array(vec![]));
    let (_, journal, _) = stage.run(&["changes", "-n", "1"]);
    assert!(
        journal.ends_with("sequential(partitioned) → partitioned  fcm:/some file\n"),
        "{journal}"
    );
}

#[test]
fn faults_reach_the_program_and_go_with_the_wrapper() {
    let stage = Stage::new();
    let Some(_serving) = stage.serve() else { return };
    let file = file(&stage);
    let wrap = ["wrap", NAME, "fault", "error=28", "every=2", "method=read"];
    assert_eq!(stage.run(&wrap).0, 0);
    let errors = (0..8).filter_map(|page| read(&file, page).err());
    let errors: Vec<_> = errors.map(|e| e.raw_os_error()).collect();
    assert_eq!(errors, [Some(28); 4]);
    assert_eq!(stage.run(&["unwrap", NAME, "fault"]).0, 0);
    assert!((0..8).all(|page| read(&file, page).is_ok()));
}

#[test]
fn what_cannot_be_wrapped_or_unwrapped_is_refused_in_a_line() {
    let stage = Stage::new();
    let Some(_serving) = stage.serve() else { return };
    let _file = file(&stage);
    let names = "there are: count, latency, concurrency, sequential, arguments, fault";
    stage.refuses(&["wrap", NAME, "counts"], names);
    stage.refuses(&["wrap", "fcm:/nothing", "count"], "no such object");
    stage.refuses(&["wrap", NAME, "latency", "methods=read"], "there are: method");
    stage.refuses(
        &["wrap", NAME, "latency", "method=reed"],
        "methods of fcm objects are: read, write",
    );
    stage.refuses(&["wrap", NAME, "arguments", "argument=frame"], "there are: offset, buf, data");
    stage.refuses(&["unwrap", NAME, "count"], "no wrapper is attached");
    assert_eq!(stage.run(&["wrap", NAME, "count"]).0, 0);
    stage.refuses(&["unwrap", NAME, "latency"], "there are: count");
    stage.refuses(&["unwrap", "fcm:/nothing", "--all"], "no such object");
    // A pattern takes in what the wrapper does not fit; that is left alone.
    let (code, stdout, stderr) = stage.run(&["wrap", "*", "arguments", "argument=buf", "--json"]);
    assert_eq!((code, &*stderr), (0, ""));
    assert!(stdout.lines().all(|l| l.contains("\"fcm:") || l.contains("\"fr:")), "{stdout}");
    let help = stage.run(&["wrap", "--help"]).1;
    for name in names.trim_start_matches("there are: ").split(", ") {
        assert!(help.contains(&format!("\n  {name}  ")), "{name}: {help}");
    }
}

#[test]
fn show_follows_until_it_is_told_to_stop() {
    let stage = Stage::new();
    let Some(_serving) = stage.serve() else { return };
    let file = file(&stage);
    assert_eq!(stage.run(&["wrap", NAME, "count"]).0, 0);
    let mut command = stage.refit(&["show", "-f", "--every", "10ms", "--json", NAME]);
    let mut following = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(following.stdout.take().expect("it is piped")).lines();
    let mut reads = Vec::new();
    for line in lines {
        let object: Value = serde_json::from_str(&line.expect("UTF-8")).expect("a JSON object");
        reads.push(object["wrappers"][0]["stats"]["read"].as_u64().unwrap_or(0));
        if reads.len() == 4 {
            break;
        }
        assert_eq!(read(&file, reads.len() as u64).expect("read"), 4096);
    }
    assert!(reads.is_sorted() && reads[0] < reads[3], "{reads:?}");
    kill_process(Pid::from_child(&following), Signal::INT).expect("it runs");
    assert!(following.wait().expect("it is our child").success());
}
