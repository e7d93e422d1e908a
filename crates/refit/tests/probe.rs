//! `refit probe` and `refit repair`, on programs that know nothing of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A database program that answers line by line, and that has been asked something.
struct Shell {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start() -> Self {
        let mut child = Command::new("sqlite3")
            .args(["-batch", ":memory:"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sqlite3");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut shell = Self { child, answers };
        assert_eq!(shell.ask("select 40 + 2;"), "42");
        shell
    }

    fn ask(&mut self, question: &str) -> String {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{question}").expect("it listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refit(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    refit(arguments).output().expect("refit")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn objects(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Waits until refit says on standard error that it watches.
fn watching(child: &mut Child) -> BufReader<std::process::ChildStderr> {
    let mut told = BufReader::new(child.stderr.take().expect("a pipe"));
    let begin = Instant::now();
    loop {
        let mut line = String::new();
        assert_ne!(told.read_line(&mut line).expect("a line"), 0, "refit ended");
        if line.contains("watching") {
            return told;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{line}");
    }
}

fn interrupt(child: &Child) {
    let process = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a number");
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
}

fn verified(id: &str) {
    let output = run(&["repair", "-p", id, "--verify"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_function_of_a_running_program_is_counted_timed_and_left_as_it_was() {
    let mut shell = Shell::start();
    let probe = "uprobe:*:sqlite3_step { count, latency, histogram arg0 }";
    let mut child = refit(&["--json", "probe", "-p", &shell.id(), "-e", probe])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let _told = watching(&mut child);
    for number in 0..10 {
        assert_eq!(shell.ask(&format!("select {number};")), number.to_string());
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("refit");
    assert!(output.status.success());
    let told = objects(&output.stdout);
    let by = |action: &str| {
        let found =
            told.iter().find(|one| one["action"].as_str().expect("text").starts_with(action));
        found.unwrap_or_else(|| panic!("{told:?}")).clone()
    };
    // Each question is one row, then the end.
    assert_eq!(by("count")["count"], 20);
    assert_eq!((&by("latency")["count"], &by("latency")["inside"]), (&20.into(), &0.into()));
    assert!(by("latency")["nanos"].as_u64().expect("a number") > 0);
    let bits: u64 = by("histogram")["bits"]
        .as_array()
        .expect("cells")
        .iter()
        .map(|cell| cell.as_u64().expect("a number"))
        .sum();
    assert_eq!(bits, 20);
    verified(&shell.id());
    assert_eq!(shell.ask("select 'well';"), "well");
}

/// Runs a program with probes; what it said itself, and what the probes told.
fn watched(probe: &str, command: &[&str]) -> (String, Vec<Value>) {
    let output = run(&[&["--json", "probe", "-e", probe, "--"], command].concat());
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    let lines = text(&output.stdout);
    let (told, own): (Vec<_>, Vec<_>) =
        lines.split_inclusive('\n').partition(|line| line.starts_with("{\"module\""));
    let told = told.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    (own.concat(), told)
}

/// A database at work.
const SUM: &str = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) \
                   select sum(x) from c";

#[test]
fn a_program_is_watched_from_its_beginning_with_all_its_functions() {
    let (own, told) = watched("uprobe:*:* { count }", &["sqlite3", ":memory:", SUM]);
    assert_eq!(own, "200010000\n");
    let of = |name: &str| {
        let found = told.iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))["count"].as_u64().expect("a number")
    };
    // Stepped once for the row and once for the end.
    assert_eq!(of("sqlite3_step"), 2);
    assert!(told.len() > 3000, "{}", told.len());
}

#[test]
fn programs_say_the_same_with_every_entry_and_exit_watched() {
    let script = "import json, hashlib; print(len(json.dumps(list(range(9999)))), \
                  hashlib.sha256(b'x').hexdigest())";
    let loops = "for i in 1 2 3 4 5 6 7 8 9; do x=$x$((i * i)); done; echo ${x//1/one} | rev";
    for command in [
        &["sqlite3", ":memory:", SUM][..],
        &["/usr/bin/python3", "-c", script],
        &["bash", "-c", loops],
        &["git", "help", "-a"],
        &["c++", "--help"],
    ] {
        let plain = Command::new(command[0]).args(&command[1..]).output().expect("it runs");
        let (own, told) = watched("uprobe:*:* { latency, count }", command);
        assert_eq!(own, text(&plain.stdout), "{command:?}");
        let entered = told.iter().filter(|one| one["count"].as_u64() > Some(0)).count();
        assert!(entered > 100, "{command:?}: {entered}");
    }
}

#[test]
fn what_a_killed_refit_left_is_taken_out() {
    let mut shell = Shell::start();
    let mut child = refit(&["probe", "-p", &shell.id(), "-e", "uprobe:*:sqlite3_step { count }"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let _told = watching(&mut child);
    child.kill().expect("killed");
    child.wait().expect("its end");
    assert_eq!(shell.ask("select 1;"), "1");
    let output = run(&["repair", "-p", &shell.id(), "--verify"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("code differs"), "{}", text(&output.stderr));
    let output = run(&["repair", "-p", &shell.id()]);
    assert_eq!(text(&output.stdout), "1 site taken out, 1 patch area given back\n");
    verified(&shell.id());
    let again = run(&["repair", "-p", &shell.id()]);
    assert_eq!(text(&again.stdout), "nothing of refit's is in it\n");
    assert_eq!(shell.ask("select 2;"), "2");
}

#[test]
fn nothing_changes_in_a_dry_run_or_a_list() {
    let shell = Shell::start();
    let list = run(&["probe", "-l", "-p", &shell.id(), "-e", "uprobe:*:sqlite3_st?p { count }"]);
    assert!(text(&list.stdout).contains(":sqlite3_step\n"), "{}", text(&list.stdout));
    let plan =
        run(&["probe", "--dry-run", "-p", &shell.id(), "-e", "uprobe:*:sqlite3_step { count }"]);
    assert!(text(&plan.stdout).contains("jump"), "{}{}", text(&plan.stdout), text(&plan.stderr));
    verified(&shell.id());
}

#[test]
fn what_cannot_be_watched_is_said_in_a_line() {
    let shell = Shell::start();
    for (arguments, code, said) in [
        (&["-p", &shell.id(), "-e", "uprobe:*:sqlite3_stepp { count }"][..], 1, "sqlite3_step"),
        (
            &["-p", &shell.id(), "-e", "uprobe:nothing:main { count }"],
            1,
            "no code of a file called nothing",
        ),
        (&["-p", &shell.id(), "-e", "insn:*:sqlite3_step+0x1 { latency }"], 2, "latency"),
        (&["-p", &shell.id(), "-e", "uprobe:main"], 2, "no `{ action }`"),
        (&["-p", "4194303", "-e", "uprobe:*:main { count }"], 1, "there is no process 4194303"),
        (&["-e", "uprobe:*:main { count }", "--", "/no/such/program"], 1, "/no/such/program"),
        (&["-e", "uprobe:*:main { count }"], 2, "--pid"),
    ] {
        let output = run(&[&["probe"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
        assert!(code == 2 || error.lines().count() == 1, "{error}");
    }
    verified(&shell.id());
}
