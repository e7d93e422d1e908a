//! Tests of `refit run --movable`: programs of every kind hold nothing of the kernel that runs
//! them, and behave as without it.

mod stage;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use stage::Stage;
use stage::running::{Running, build, can_limit, until};

/// A program that prints the kernel state that it holds, and its addresses. A child of it, a child
/// that has executed it anew, and a thread do the same.
const HOLDS: &str = r#"#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifndef SYS_rseq
#define SYS_rseq 334
#endif
static int before(struct timespec a, struct timespec b) {
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec <= b.tv_nsec);
}
static void tell(const char *who) {
    struct timespec first, asked, last;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &first);
    clock_gettime(CLOCK_MONOTONIC, &asked);
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &last);
    static char area[64] __attribute__((aligned(64)));
    int refused = syscall(SYS_rseq, area, 32, 0, 0x53053053) == -1 ? errno : 0;
    printf("%s: vdso %d, clock %s, rseq %s\n", who, getauxval(AT_SYSINFO_EHDR) != 0,
           before(first, asked) && before(asked, last) ? "right" : "wrong",
           refused == ENOSYS ? "none" : "there");
    fflush(stdout);
}
static void *thread(void *p) { tell("thread"); return p; }
int main(int argc, char **argv) {
    if (argc > 1) { tell(argv[1]); return 5; }
    tell("program");
    printf("at %p %p %p %p\n", (void *)main, (void *)&argc, malloc(1),
           mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fflush(stdout);
    pthread_t t;
    pthread_create(&t, 0, thread, 0);
    pthread_join(t, 0);
    if (!fork()) { tell("child"); _exit(0); }
    wait(0);
    if (!vfork()) { execl("/proc/self/exe", argv[0], "vforked", (char *)0); _exit(1); }
    wait(0);
    execl("/proc/self/exe", argv[0], "anew", (char *)0);
    return 1;
}
"#;

/// The prefixes of all lines except that of addresses.
const SAID: [&str; 5] = ["program", "thread", "child", "vforked", "anew"];

fn finish(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it starts")
}

fn movable(stage: &Stage, command: &[&str]) -> Output {
    finish(stage.refit(&["run", "--movable", "--"]).args(command))
}

/// Asserts that the output of a command is the same twice, and shows no state of the kernel.
fn holds_nothing(stage: &Stage, command: &[&str]) {
    let first = movable(stage, command);
    assert_eq!((first.status.code(), &first.stderr[..]), (Some(5), &b""[..]), "{command:?}");
    assert_eq!(movable(stage, command), first, "{command:?}");
    let said = String::from_utf8(first.stdout).expect("text");
    let (places, said): (Vec<_>, Vec<_>) = said.lines().partition(|line| line.starts_with("at "));
    let nothing = SAID.map(|who| format!("{who}: vdso 0, clock right, rseq none"));
    assert_eq!((places.len(), said), (1, nothing.each_ref().map(String::as_str).to_vec()));
    let plain = finish(Command::new(command[0]).args(&command[1..]));
    assert_eq!(plain.status.code(), Some(5), "{command:?}");
}

fn compiled(stage: &Stage, name: &str, compiler: &[&str]) -> String {
    let (from, to) = (stage.path(&format!("{name}.c")), stage.path(name));
    fs::write(&from, HOLDS).expect("written");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-O1", "-pthread", "-o"]).args([&to, &from]);
    assert!(command.status().expect("a compiler").success(), "{compiler:?}");
    to.to_str().expect("UTF-8").to_owned()
}

/// Returns whether there is such a program.
fn there(program: &str, version: &str) -> bool {
    let there = Command::new(program).arg(version).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: there is no {program}");
    }
    there
}

#[test]
fn programs_of_every_kind_hold_nothing_of_the_kernel() {
    let stage = Stage::new();
    for (name, compiler) in [
        ("dynamic", &["cc"][..]),
        ("fixed", &["cc", "-no-pie"]),
        ("static", &["cc", "-static"]),
        ("static-pie", &["cc", "-static-pie"]),
    ] {
        holds_nothing(&stage, &[&compiled(&stage, name, compiler)]);
    }
    if there("musl-gcc", "--version") {
        holds_nothing(&stage, &[&compiled(&stage, "musl", &["musl-gcc"])]);
        holds_nothing(&stage, &[&compiled(&stage, "musl-static", &["musl-gcc", "-static"])]);
    }
}

#[test]
fn scripts_and_what_they_run_hold_nothing_of_the_kernel() {
    let stage = Stage::new();
    let program = compiled(&stage, "dynamic", &["cc"]);
    let script = stage.path("script");
    fs::write(&script, format!("#!/bin/sh\n: | cat\n{program}\nexit $?\n")).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    holds_nothing(&stage, &[script.to_str().expect("UTF-8")]);
}

#[test]
fn programs_say_and_end_as_without() {
    let stage = Stage::new();
    let python = "
import multiprocessing, subprocess, threading, time
def square(n): return n * n
with multiprocessing.Pool(2) as pool: print(sum(pool.map(square, range(1000))))
threads = [threading.Thread(target=square, args=(n,)) for n in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
print(subprocess.run(['sh', '-c', 'exit 5']).returncode, time.time() > 1.6e9)
raise SystemExit(4)
";
    for command in [
        &["true"][..],
        &["sh", "-c", "echo out; echo err >&2; exit 7"],
        &["sh", "-c", "kill -SEGV $$"],
        &["bash", "-c", "for i in $(seq 50); do /bin/true; done; seq 100000 | md5sum"],
        &["python3", "-c", python],
    ] {
        let plain = finish(Command::new(command[0]).args(&command[1..]));
        assert_eq!(movable(&stage, command), plain, "{command:?}");
    }
    let missing = movable(&stage, &["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
}

#[test]
fn a_program_in_go_finds_the_time_without_the_kernels_help() {
    if !there("go", "version") {
        return;
    }
    let stage = Stage::new();
    let (from, to) = (stage.path("clock.go"), stage.path("clock"));
    let source = r#"package main
        import ("fmt"; "os"; "os/exec"; "time")
        func main() {
            done := make(chan time.Time)
            for i := 0; i < 8; i++ { go func() { time.Sleep(time.Millisecond); done <- time.Now() }() }
            begun := time.Now()
            for i := 0; i < 8; i++ { <-done }
            fmt.Println(begun.Year() >= 2024, time.Since(begun) > 0)
            out, err := exec.Command("sh", "-c", "echo child").Output()
            fmt.Print(string(out), err, "\n")
            os.Exit(5)
        }"#;
    fs::write(&from, source).expect("written");
    let built = Command::new("go").arg("build").arg("-o").args([&to, &from]).output();
    let built = built.expect("go is there");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = movable(&stage, &[to.to_str().expect("UTF-8")]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), &*said), (Some(5), "true true\nchild\n<nil>\n"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn rights_are_given_up_only_where_that_is_needed() {
    let stage = Stage::new();
    let status = ["grep", "NoNewPrivs", "/proc/self/status"];
    let said = |output: Output| {
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().last().expect("a number").to_owned()
    };
    if !rustix::process::geteuid().is_root() {
        assert_eq!(said(movable(&stage, &status)), "1");
        return;
    }
    assert_eq!(
        said(movable(&stage, &status)),
        said(finish(Command::new(status[0]).args(&status[1..])))
    );
    let refit = stage.refit(&["run", "--movable", "--"]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    command.arg(refit.get_program()).args(refit.get_args()).args(status);
    command.env("REFIT_RUNTIME_DIR", stage.path("sockets"));
    assert_eq!(said(finish(&mut command)), "1");
}

/// A program that fills 32 MiB, prints "filled", and for a line of its input prints whether the
/// memory is unchanged. With an argument it installs a filter of its own.
const FILLS: &str = r#"#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
enum { WORDS = 4 << 20 };
static uint64_t all[WORDS];
int main(int argc, char **argv) {
    struct sock_filter every = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { 1, &every };
    if (argc > 1 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)))
        return 8;
    for (uint64_t i = 0; i < WORDS; i++) all[i] = i * 0x9e3779b97f4a7c15u;
    puts("filled");
    fflush(stdout);
    if (getchar() != '\n') return 7;
    for (uint64_t i = 0; i < WORDS; i++) if (all[i] != i * 0x9e3779b97f4a7c15u) return 1;
    return 0;
}
"#;

/// Runs it within a limit until the report about it satisfies `is`; returns its final output.
fn within(stage: &Stage, arguments: &[&str], what: &str, is: impl Fn(&Value) -> bool) -> String {
    let program = build(stage, "fills", FILLS);
    let mut command = stage.refit(&["run", "--movable", "--memory", "16M", "--", &program]);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().expect("it starts"));
    let mut said = String::new();
    let mut answers = BufReader::new(running.0.stdout.take().expect("a pipe"));
    answers.read_line(&mut said).expect("it writes");
    assert_eq!(said, "filled\n");
    until(what, || {
        let (code, shown, stderr) = stage.run(&["--json", "show", &running.id().to_string()]);
        assert_eq!((code, &*stderr), (0, ""));
        is(&serde_json::from_str(&shown).expect("one JSON object"))
    });
    running.0.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
    assert_eq!(running.0.wait().expect("ours").code(), Some(0));
    let mut error = String::new();
    running.0.stderr.take().expect("a pipe").read_to_string(&mut error).expect("text");
    error
}

#[test]
fn what_is_movable_can_be_limited() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let error = within(&stage, &[], "pages in the store", |shown| {
        let store = &shown["memory"]["store"];
        assert_eq!((&shown["movable"], &shown["refused"]), (&true.into(), &Value::Null));
        store["in_file"].as_u64() > Some(0)
    });
    assert_eq!(error, "");
    let error = within(&stage, &["filter"], "a refusal", |shown| !shown["refused"].is_null());
    assert!(
        error.contains("1 program was not limited: fills (it has a seccomp filter of its own"),
        "{error}"
    );
}

#[test]
fn who_is_movable_is_listed() {
    let stage = Stage::new();
    for (options, word) in [(&["--movable"][..], "yes"), (&[], "no")] {
        let sleeps = Running::start(&stage, options, &["sleep", "1000"], "sleep");
        let id = sleeps.id().to_string();
        // The name of the first program is known after the kernel has reported its exec.
        until("what it is", || {
            let (_, stdout, _) = stage.run(&["--json", "ps"]);
            let line = stdout.lines().find(|line| line.contains(&format!("\"pid\":{id},")));
            line.is_some_and(|line| line.contains(&format!("\"movable\":{}", word == "yes")))
        });
        let (code, text, _) = stage.run(&["show", &id]);
        let line = text.lines().find(|line| line.trim_start().starts_with("movable"));
        let said = line.and_then(|line| line.split_whitespace().last());
        assert_eq!((code, said), (0, Some(word)), "{text}");
        let (_, text, _) = stage.run(&["ps"]);
        assert!(text.lines().next().is_some_and(|head| head.contains("MOVABLE")), "{text}");
    }
}
