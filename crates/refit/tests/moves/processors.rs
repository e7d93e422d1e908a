//! Which processors a program is told of whose threads run at several instances.

use std::process::Stdio;

use crate::failures::Two;
use crate::stage::Stage;

/// Asks again and again which processors it may use: as it begins; elsewhere and at home, in threads of its own; and when it has chosen one.
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

#[test]
fn a_program_that_is_spread_is_told_of_all_processors() {
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    if own < 2 {
        return println!("skipped: this machine has one processor");
    }
    let stage = Stage::new();
    let mut boot = stage.refit(&["boot", "--instances", "2", "--cpus", "0/1"]);
    let booted = boot.stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8_lossy(&booted.stderr);
    if said.contains("there are not all processors") {
        return println!("skipped: {said}");
    }
    assert!(booted.status.success(), "{said}");
    let two = Two::of(stage);
    let says = |how: &[&str]| {
        let command = [&["run", "--on", "0"], how, &["--", "python3", "-c", ASKS]].concat();
        let (code, told, said) = two.stage.run(&command);
        assert_eq!((code, &said[..]), (0, ""), "{told}");
        told
    };
    let nobody = "No such process";
    assert_eq!(says(&["--movable"]), format!("0\n0\n0\n{nobody}\n1\n1\n"));
    assert_eq!(says(&["--movable", "--spread"]), format!("0 1\n0 1\n0 1\n{nobody}\n1\n1\n"));
}
