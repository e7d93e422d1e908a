//! Tests of `refit show PID` for a program whose threads run at two instances: their places, and
//! the totals of their moves, also after its end.

mod stage;

use std::io::Write;

use serde_json::Value;
use stage::Stage;
use stage::running::{Running, build, until};

/// A program one thread of which touches memory and sleeps, again and again; the first one waits
/// for the end of the input.
const WORKS: &str = r#"#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void *works(void *p) {
    for (;;) {
        volatile char *memory = malloc(1 << 20);
        for (int i = 0; i < 1 << 20; i += 4096) memory[i] = 1;
        free((void *)memory);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, 0);
    }
    return p;
}
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, works, 0)) return 1;
    char c;
    while (read(0, &c, 1) > 0) { }
    _exit(0);
}
"#;

/// The number of `clock_nanosleep(2)`, by which the C library sleeps.
const SLEEPS: u64 = 230;

/// Two instances, which end on drop.
struct Booted<'a>(&'a Stage);

impl<'a> Booted<'a> {
    fn new(stage: &'a Stage) -> Self {
        let (code, _, said) = stage.run(&["boot", "--instances", "2"]);
        assert_eq!(code, 0, "{said}");
        Self(stage)
    }
}

impl Drop for Booted<'_> {
    fn drop(&mut self) {
        self.0.run(&["shutdown", "--kill"]);
    }
}

fn shown(stage: &Stage, process: &str) -> Value {
    let (code, stdout, stderr) = stage.run(&["--json", "show", process]);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("a JSON object")
}

/// Returns whether a thread is at the other instance, has retrieved memory, and has slept.
fn works_there(said: &Value) -> bool {
    let there = said["places"].as_array().is_some_and(|all| all.iter().any(|one| one["at"] == 1));
    let host = &said["moves"]["destinations"][0];
    let calls = host["calls"].as_array().into_iter().flatten();
    let sleeps = calls.filter(|call| call["number"] == SLEEPS).any(|call| call["count"] != 0);
    there && sleeps && host["number"] == 1 && host["faults"]["count"] != 0
}

#[test]
fn what_moves_come_to_is_told_until_after_the_end() {
    let stage = Stage::new();
    let booted = Booted::new(&stage);
    let program = build(&stage, "works", WORKS);
    let options = ["--on", "0", "--movable", "--spread"];
    let mut running = Running::start(&stage, &options, &[&program], "works");
    let process = running.id().to_string();
    until("the thread at the other instance", || works_there(&shown(&stage, &process)));
    let before = shown(&stage, &process);
    let (_, text, _) = stage.run(&["show", &process]);
    for word in ["1 at 1", "retrievals", "queue", "clock_nanosleep", "mapping retrieval"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let instance = before["instance"].to_string();
    let (_, metrics, said) = stage.run(&["--instance", &instance, "metrics"]);
    assert!(metrics.contains("what=\"out\"} "), "{metrics}{said}");

    drop(running.0.stdin.take().expect("a pipe").write_all(b"\n"));
    assert!(running.0.wait().expect("it ends").success());
    let ended = || stage.run(&["show", &process]).1.contains("which has ended");
    until("the end, at its instance", ended);
    let after = shown(&stage, &process);
    let count = |of: &Value, what: &str| of["moves"]["destinations"][0][what]["count"].as_u64();
    for what in ["faults", "asks", "changes"] {
        assert!(count(&after, what) >= count(&before, what), "{what}: {before} {after}");
    }
    let moves = |name: &str| after["moves"][name].as_u64().unwrap_or(0);
    let answers = after["moves"]["answers"]["count"].as_u64();
    let kinds = ["shared", "converted", "files", "unmapped"].map(moves);
    assert_eq!(Some(kinds.iter().sum()), answers, "{after}");
    drop(booted);
    stage.refuses(&["show", &process], "no such process");
}
