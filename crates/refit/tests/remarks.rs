//! Tests that `refit run --memory` reports once, at the end of a program, which memory was not
//! limited, on the program's own standard error, and nowhere else.

mod stage;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use serde_json::Value;

use stage::Stage;
use stage::running::{Running, build, can_limit, until};

/// A program with 16 MiB, and with a filter, so that it is not served. It prints "ready", and
/// executes a command for each line of its input.
const FILTERED: &str = r#"#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
static char *volatile memory;
static void line(void) { char byte; do if (read(0, &byte, 1) != 1) _exit(9); while (byte != '\n'); }
static void ready(void) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { 1, &all };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(8);
    memory = malloc(16 << 20);
    memset(memory, 1, 16 << 20);
    if (write(1, "ready\n", 6) != 6) _exit(7);
    line();
}
static void *ends(void *p) { line(); exit(3); }
static void *becomes(void *p) { execl("/bin/sh", "sh", "-c", "read x; exit 3", (char *)0); return p; }
int main(int argc, char **argv) {
    const char *how = argv[1];
    pthread_t thread;
    if (!strcmp(how, "child")) {
        pid_t child = fork();
        if (!child) { ready(); _exit(0); }
        waitpid(child, 0, 0);
        if (write(1, "gone\n", 5) != 5) return 6;
        line();
        return 3;
    }
    ready();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "close")) close(2);
    if (!strcmp(how, "replace")) dup2(open(argv[2], O_WRONLY | O_CREAT, 0600), 2);
    if (!strcmp(how, "fill")) {
        fcntl(2, F_SETFL, O_NONBLOCK);
        while (write(2, "................", 16) == 16) ;
        fcntl(2, F_SETFL, 0);
    }
    if (!strcmp(how, "thread")) { pthread_create(&thread, 0, ends, 0); for (;;) pause(); }
    if (!strcmp(how, "leader")) { pthread_create(&thread, 0, ends, 0); pthread_exit(0); }
    if (!strcmp(how, "become")) { pthread_create(&thread, 0, becomes, 0); for (;;) pause(); }
    if (!strcmp(how, "exec")) becomes(0);
    line();
    return 3;
}
"#;

/// Runs it; returns its exit status and its standard error.
fn end_of(stage: &Stage, arguments: &[&str]) -> (ExitStatus, String) {
    let program = build(stage, "filtered", FILTERED);
    let mut command = stage.refit(&["run", "--memory", "8M", "--", &program]);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().expect("it starts"));
    let mut lines = running.0.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(running.0.stdout.take().expect("a pipe"));
    let mut answer = || {
        let mut line = String::new();
        answers.read_line(&mut line).expect("it writes");
        line
    };
    assert_eq!(answer(), "ready\n");
    until("that it is not served", || {
        let (code, shown, stderr) = stage.run(&["--json", "show", &running.id().to_string()]);
        assert_eq!((code, &*stderr), (0, ""));
        let shown: Value = serde_json::from_str(&shown).expect("one JSON object");
        shown["memory"]["refused"].as_array().is_some_and(|refused| refused.len() == 1)
    });
    let mut next = || lines.write_all(b"\n");
    next().expect("it reads");
    if arguments[0] == "child" {
        assert_eq!(answer(), "gone\n");
    }
    if arguments[0] == "leader" {
        until("the end of its first thread", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.id()));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        });
    }
    // A killed program reads no more.
    let _ = next();
    let status = running.0.wait().expect("ours");
    let mut error = String::new();
    let mut from = running.0.stderr.take().expect("a pipe");
    from.read_to_string(&mut error).expect("text");
    until("the end of the instance", || stage.sockets().is_empty());
    (status, error)
}

fn warning(name: &str) -> String {
    format!(
        "refit: run {name}: 1 program was not limited: filtered (it has a seccomp filter of its \
         own); see `Limits` in docs/guide/limit.md\n"
    )
}

#[test]
fn a_program_that_was_not_limited_is_told_at_its_end() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    for how in ["return", "child", "thread", "leader"] {
        let (status, error) = end_of(&stage, &[how]);
        assert_eq!((status.code(), error), (Some(3), warning("filtered")), "{how}");
    }
    let (status, error) = end_of(&stage, &["exec"]);
    assert_eq!((status.code(), error), (Some(3), warning("sh")));
}

#[test]
fn however_it_ends_it_is_told_once() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let (status, error) = end_of(&stage, &["kill"]);
    assert_eq!((status.signal(), error), (Some(9), warning("filtered")));
    // The first thread ends when another executes a program.
    let (status, error) = end_of(&stage, &["become"]);
    assert_eq!((status.code(), error.lines().count()), (Some(3), 1), "{error}");
}

#[test]
fn nothing_is_written_to_what_was_not_its_standard_error() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let (status, error) = end_of(&stage, &["close"]);
    assert_eq!((status.code(), &*error), (Some(3), ""));
    let data = stage.path("data");
    let (status, error) = end_of(&stage, &["replace", data.to_str().expect("UTF-8")]);
    assert_eq!((status.code(), &*error), (Some(3), ""));
    assert_eq!(std::fs::read(data).expect("it made it"), b"");
}

#[test]
fn a_pipe_that_nobody_reads_keeps_nobody() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let (status, error) = end_of(&stage, &["fill"]);
    assert_eq!((status.code(), error.trim_matches('.')), (Some(3), ""));
}
