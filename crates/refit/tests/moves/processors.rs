//! Tests of the processors that are reported to a program whose threads run at several instances,
//! and of the places of its calls.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::failures::Two;
use crate::stage::Stage;
use crate::stage::running::until;

/// A program that repeatedly asks which processors it may use: at its beginning; elsewhere and at
/// home, in threads of its own; and after it has chosen one.
const ASKS: &str = "\
import os, sys, threading, time
def told(): print(*sorted(os.sched_getaffinity(0)), flush=True)
told()
def elsewhere():
    time.sleep(0.1)
    told()
for _ in range(2):
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
try: os.sched_getaffinity(2 ** 31 - 1)
except OSError as error: print(error.strerror, flush=True)
os.sched_setaffinity(0, {1})
told()
os.execvp('nproc', ['nproc'])
";

/// Boots two instances with a processor each; `None` if the host has too few.
fn two() -> Option<Two> {
    let stage = Stage::new();
    let mut boot = stage.refit(&["boot", "--instances", "2", "--cpus", "0/1"]);
    let booted = boot.stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8_lossy(&booted.stderr);
    if said.contains("some processors of") {
        println!("skipped: {said}");
        return None;
    }
    assert!(booted.status.success(), "{said}");
    Some(Two::of(stage))
}

#[test]
fn a_program_that_is_spread_is_told_of_all_processors() {
    let Some(two) = two() else { return };
    let says = |how: &[&str]| {
        let command = [&["run", "--on", "0"], how, &["--", "python3", "-c", ASKS]].concat();
        let (code, output, said) = two.stage.run(&command);
        assert_eq!((code, &said[..]), (0, ""), "{output}");
        output
    };
    let nobody = "No such process";
    assert_eq!(says(&["--movable"]), format!("0\n0\n0\n{nobody}\n1\n1\n"));
    assert_eq!(says(&["--movable", "--spread"]), format!("0 1\n0 1\n0 1\n{nobody}\n1\n1\n"));
}

/// A program that chooses processors on command, and prints those that it may use.
const CHOOSES: &str = "\
import os, sys
for line in sys.stdin:
    if line.strip(): os.sched_setaffinity(0, {int(line)})
    print(*sorted(os.sched_getaffinity(0)), flush=True)
";

#[test]
fn a_shadow_works_where_its_thread_runs_and_at_home_where_it_was_told_to() {
    let Some(two) = two() else { return };
    let mut refit = two.stage.refit(&["run", "--on", "0", "--movable", "--"]);
    let refit = refit.args(["python3", "-c", CHOOSES]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = refit.spawn().expect("it starts");
    let (id, mut input) = (child.id(), child.stdin.take().expect("a pipe"));
    let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut says = |choice: &str| {
        writeln!(input, "{choice}").expect("it reads");
        output.next().expect("it tells").expect("UTF-8")
    };
    let works = || {
        let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let of = |line: &str| line.strip_prefix("Cpus_allowed_list:\t").map(str::to_owned);
        status.lines().find_map(of).expect("processors")
    };
    let goes = |to: &str| assert_eq!(two.stage.run(&["move", &id.to_string(), to]).0, 0);
    assert_eq!((says(""), works()), ("0".to_owned(), "0".to_owned()));
    goes("1");
    // The program makes other calls, before and after those that ask.
    until("to work elsewhere", || says("") == "0" && works() == "1");
    goes("0");
    assert_eq!((works(), says("")), ("0".to_owned(), "0".to_owned()));
    // Its choice elsewhere holds at home.
    goes("1");
    assert_eq!(says("1"), "1");
    goes("0");
    assert_eq!((works(), says("")), ("1".to_owned(), "1".to_owned()));
    goes("1");
    assert_eq!(says("0"), "0");
    until("to work elsewhere", || says("") == "0" && works() == "1");
    goes("0");
    assert_eq!((works(), says("")), ("0".to_owned(), "0".to_owned()));
    drop(input);
    assert!(child.wait().expect("its end").success());
}
