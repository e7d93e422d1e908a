//! Tests of `refit show PID` for a program whose threads run at two instances: their places, and
//! the totals of their moves, also after its end.

mod stage;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

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

/// A program in which each line of input has two threads call `work` 1000 times each, and answer.
const ASKED: &str = r#"#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static volatile long sum;
__attribute__((noinline)) static void work(long x) {
    __asm__ volatile("" : "+r"(x)::"memory");
    __atomic_add_fetch(&sum, x, __ATOMIC_RELAXED);
}
static void *calls(void *p) {
    int *ends = p;
    char c;
    while (read(ends[0], &c, 1) == 1) {
        for (int i = 0; i < 1000; i++) work(i);
        if (write(ends[1], "d", 1) != 1) return p;
    }
    return p;
}
int main(void) {
    int go[2], done[2];
    if (pipe(go) || pipe(done)) return 1;
    int ends[2] = { go[0], done[1] };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, calls, ends);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        if (write(go[1], "gg", 2) != 2) return 1;
        for (int i = 0; i < 2; i++) if (read(done[0], line, 1) != 1) return 1;
        printf("%ld\n", sum);
        fflush(stdout);
    }
    _exit(0);
}
"#;

/// The sum that a line of input adds.
const ADDED: u64 = 2 * 999 * 1000 / 2;

#[test]
fn calls_are_counted_wherever_the_threads_of_a_program_run() {
    let stage = Stage::new();
    let booted = Booted::new(&stage);
    let program = build(&stage, "asked", ASKED);
    let mut running = Running::start(&stage, &["--on", "0", "--movable"], &[&program], "asked");
    let process = running.id().to_string();
    let mut input = running.0.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(running.0.stdout.take().expect("a pipe"));
    let mut sum = 0;
    let mut ask = |times: u64| {
        for _ in 0..times {
            writeln!(input).expect("it listens");
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
            sum += ADDED;
            assert_eq!(line.trim(), sum.to_string());
        }
    };
    let go = |to: &str| {
        let (code, _, said) = stage.run(&["move", &process, to]);
        assert_eq!(code, 0, "{said}");
    };
    let verify = || {
        let (code, told, said) = stage.run(&["repair", "-p", &process, "--verify"]);
        assert_eq!(code, 0, "{told}{said}");
    };
    ask(1);
    // The threads are elsewhere when the code is put in and taken out, or here, and move meanwhile.
    for (first, second) in [("0", "1"), ("1", "0"), ("1", "1")] {
        go(first);
        let probe = "uprobe:asked:work { @ = count(); @on[ustack(2)] = count() }";
        let mut refit = stage.refit(&["probe", "-p", &process, "-e", probe]);
        let mut refit = refit.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refit");
        let mut told = BufReader::new(refit.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("watching") {
            line.clear();
            assert_ne!(told.read_line(&mut line).expect("a line"), 0, "refit has ended");
        }
        ask(2);
        go(second);
        ask(2);
        go(first);
        ask(1);
        let id = rustix::process::Pid::from_child(&refit);
        rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
        let mut counted = String::new();
        refit.stdout.take().expect("a pipe").read_to_string(&mut counted).expect("its answer");
        assert!(refit.wait().expect("its end").success(), "{counted}");
        assert!(counted.contains("10 000  @"), "{first} {second}: {counted}");
        ask(1);
        verify();
        let away = shown(&stage, &process)["places"].clone();
        let away = away.as_array().is_some_and(|all| all.iter().any(|one| one["at"] == 1));
        assert_eq!(away, first == "1");
    }
    // Instances that end before it would report that they have lost each other.
    drop(input);
    assert!(running.0.wait().expect("it ends").success());
    drop(booted);
}
