//! Tests of `refit run --memory` with failures, of the disk, of its space, of the instance, and of
//! the remaining memory, and with large numbers of everything.

mod stage;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use stage::Stage;
use stage::running::{Running, build, can_limit, until};

/// The address of the memory of [`TOUCHES`], by which its region is known.
const PLACE: &str = "100000000000";

/// A program that fills 32 MiB with data that cannot be compressed. For each line of its input it
/// then reads all pages, reports how many were unavailable (`SIGBUS`) and how many differ from the
/// written data, and writes them anew.
const TOUCHES: &str = r#"#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
enum { PAGES = 8192, WORDS = 512 };
static sigjmp_buf back;
static uint64_t *all;
static uint64_t word(uint64_t i, uint64_t round) { return (i + round) * 0x9e3779b97f4a7c15u; }
static void lost(int signal) { siglongjmp(back, signal); }
static void fill(uint64_t round) {
    for (uint64_t i = 0; i < (uint64_t)PAGES * WORDS; i++) all[i] = word(i, round);
}
int main(int argc, char **argv) {
    all = mmap((void *)0x100000000000, (size_t)PAGES << 12, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (all == MAP_FAILED) return 2;
    signal(SIGBUS, lost);
    fill(0);
    puts("filled");
    fflush(stdout);
    char line[16];
    for (volatile uint64_t round = 0; fgets(line, sizeof line, stdin); round++) {
        volatile int gone = 0, wrong = 0;
        for (volatile uint64_t page = 0; page < PAGES; page++) {
            if (sigsetjmp(back, 1)) { gone++; continue; }
            for (uint64_t i = page * WORDS; i < (page + 1) * WORDS; i++)
                if (all[i] != word(i, round)) { wrong++; break; }
        }
        printf("lost %d wrong %d\n", gone, wrong);
        fflush(stdout);
        // Lost pages are given up; new memory takes their place.
        if (gone)
            mmap(all, (size_t)PAGES << 12, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        fill(round + 1);
    }
    return 0;
}
"#;

/// The running program, which advances on command.
struct Touches {
    stage: Stage,
    running: Running,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Touches {
    /// Starts it, and waits until its memory is filled. `None` where programs cannot be limited.
    fn start(limit: &str) -> Option<Self> {
        let stage = Stage::new();
        if !can_limit(&stage) {
            return None;
        }
        let program = build(&stage, "touches", TOUCHES);
        let mut command = stage.refit(&["run", "--memory", limit, "--", &program]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running(command.spawn().expect("it starts"));
        Some(Self::filled(stage, running))
    }

    fn filled(stage: Stage, mut running: Running) -> Self {
        let lines = running.0.stdin.take().expect("a pipe");
        let answers = BufReader::new(running.0.stdout.take().expect("a pipe"));
        let mut touches = Self { stage, running, lines, answers };
        assert_eq!(touches.answer(), "filled\n");
        touches
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it writes");
        answer
    }

    /// Lets it check all pages and write them anew; returns its report.
    fn round(&mut self) -> String {
        self.lines.write_all(b"\n").expect("it reads");
        self.answer()
    }

    fn show(&self) -> Value {
        let id = self.running.id().to_string();
        let (code, stdout, stderr) = self.stage.run(&["--json", "show", &id]);
        assert_eq!((code, &*stderr), (0, ""));
        serde_json::from_str(&stdout).expect("one JSON object")
    }

    /// Ends it; returns its standard error.
    fn last_words(mut self) -> String {
        drop(self.lines);
        assert_eq!(self.running.0.wait().expect("ours").code(), Some(0));
        let mut error = String::new();
        let mut from = self.running.0.stderr.take().expect("a pipe");
        from.read_to_string(&mut error).expect("text");
        error
    }

    /// Waits until some of its memory is evicted.
    fn has_pages_out(&self) {
        until("pages in the store", || number(&self.show()["memory"]["store"]["in_file"]) > 0);
    }

    /// Waits until its memory is within the limit.
    fn keeps_to_its_limit(&self) {
        until("less memory", || {
            let memory = &self.show()["memory"];
            let compressed = number(&memory["store"]["compressed_bytes"]);
            number(&memory["resident_bytes"]) + compressed <= number(&memory["limit_bytes"])
        });
    }

    /// Makes a method of the objects behind its region fail from now on.
    fn wrap(&self, method: &str) {
        let behind = format!("fr:{}/{PLACE}", self.running.id());
        let said = self.stage.run(&["wrap", &behind, "fault", "error=5", method]);
        assert_eq!((said.0, &*said.2), (0, ""), "{}", said.1);
    }

    fn unwrap(&self) {
        let behind = format!("fr:{}/{PLACE}", self.running.id());
        let said = self.stage.run(&["unwrap", &behind, "fault"]);
        assert_eq!((said.0, &*said.2), (0, ""), "{}", said.1);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

const ALL_THERE: &str = "lost 0 wrong 0\n";

#[test]
fn a_full_disk_ends_the_limit_and_not_the_program() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    // A mount namespace of its own, in which `/var/tmp` has no space. The command itself may be
    // there.
    let refit = stage.path("refit");
    std::fs::write(&refit, "").expect("written");
    let program = build(&stage, "touches", TOUCHES);
    let script = "mount --make-rprivate / && mount --bind \"$1\" \"$2\" &&
        mount -t tmpfs -o size=4m none /var/tmp && exec \"$2\" run --memory 12M -- \"$3\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_refit")]);
    command.arg(&refit).arg(&program).env("REFIT_RUNTIME_DIR", stage.path("sockets"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running(command.spawn().expect("unshare is there"));
    let mut touches = Touches::filled(stage, running);
    until("that it is full", || touches.show()["memory"]["full"] == true);
    for _ in 0..2 {
        assert_eq!(touches.round(), ALL_THERE);
    }
    until("that it is full", || touches.show()["memory"]["full"] == true);
    let shown = touches.show();
    assert_eq!(shown["memory"]["lost"], 0, "{shown}");
    assert_eq!(
        touches.last_words(),
        "refit: run touches: pages could not be written to the swap file, so the program exceeded \
         its limit; make room in /var/tmp\n"
    );
}

#[test]
fn pages_that_the_disk_does_not_give_back_are_lost_and_no_others() {
    let Some(mut touches) = Touches::start("16M") else { return };
    touches.has_pages_out();
    touches.wrap("method=read");
    let answer = touches.round();
    let words: Vec<&str> = answer.split_whitespace().collect();
    let [_, lost, _, wrong] = words[..] else { panic!("{answer}") };
    assert_eq!(wrong, "0");
    let lost: u64 = lost.parse().expect("a number");
    assert!(lost > 0, "{answer}");
    // The wrapped object has ended with its region, in whose place the program has mapped another.
    // A page that is touched again while its loss is being reported can be counted twice.
    until("that they are counted", || number(&touches.show()["memory"]["lost"]) >= lost);
    for _ in 0..2 {
        assert_eq!(touches.round(), ALL_THERE);
    }
    touches.keeps_to_its_limit();
    let counted = number(&touches.show()["memory"]["lost"]);
    let said = touches.last_words();
    let digits: String = said.chars().filter(char::is_ascii_digit).collect();
    assert_eq!(digits, counted.to_string(), "{said}");
    let end = " pages were lost; check the disk of the swap file, which did not return what was written\n";
    assert!(said.starts_with("refit: run touches: ") && said.ends_with(end), "{said}");
}

#[test]
fn pages_that_the_disk_does_not_take_stay_in_memory() {
    let Some(mut touches) = Touches::start("16M") else { return };
    touches.has_pages_out();
    touches.wrap("method=write");
    for _ in 0..3 {
        assert_eq!(touches.round(), ALL_THERE);
    }
    until("that it is full", || touches.show()["memory"]["full"] == true);
    touches.unwrap();
    // The eviction is tried again.
    touches.keeps_to_its_limit();
    assert_eq!(touches.round(), ALL_THERE);
    touches.keeps_to_its_limit();
    let shown = touches.show();
    let memory = &shown["memory"];
    assert_eq!((&memory["lost"], &memory["full"]), (&0.into(), &false.into()), "{shown}");
}

#[test]
fn nobody_runs_on_without_the_instance_that_has_its_pages() {
    let Some(mut touches) = Touches::start("16M") else { return };
    touches.has_pages_out();
    let instance = i32::try_from(number(&touches.show()["instance"])).expect("a process");
    // The program is about to touch pages, or is touching them.
    touches.lines.write_all(b"\n").expect("it reads");
    kill_process(Pid::from_raw(instance).expect("not 0"), Signal::KILL).expect("it runs");
    assert_eq!(touches.running.0.wait().expect("ours").signal(), Some(9));
    let mut said = String::new();
    touches.answers.read_to_string(&mut said).expect("text");
    assert!(said.lines().all(|line| line == ALL_THERE.trim_end()), "{said}");
    // Where no process reaps the dead, one that has ended stays as a zombie.
    let there = |process: i32| {
        let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        Path::new(&format!("/proc/{process}")).exists() && !state.contains(") Z")
    };
    until("the end of the instance", || !there(instance));
    let (_, listed, _) = touches.stage.run(&["--json", "ps"]);
    assert_eq!(listed, "");
}

/// Compiles and runs a C program within a limit, to its end; returns exit code and output.
fn within(limit: &str, source: &str) -> Option<(Option<i32>, String)> {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return None;
    }
    let program = build(&stage, "program", source);
    let output = stage.refit(&["run", "--memory", limit, "--", &program]).output();
    let output = output.expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    until("the end of the instance", || stage.sockets().is_empty());
    Some((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
fn ten_thousand_regions_keep_what_is_in_them() {
    let source = r#"#define _GNU_SOURCE
        #include <stdint.h>
        #include <stdio.h>
        #include <sys/mman.h>
        enum { REGIONS = 10000, PAGE = 4096 };
        int main(void) {
            // The third page of three keeps regions apart.
            char *all = mmap(0, (size_t)REGIONS * 3 * PAGE, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            for (size_t i = 0; i < REGIONS; i++)
                if (mprotect(all + i * 3 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE)) return 2;
            for (uint64_t round = 0; round < 3; round++) {
                for (size_t i = 0; i < REGIONS; i++) {
                    uint64_t *words = (uint64_t *)(all + i * 3 * PAGE);
                    for (size_t w = 0; w < 1024; w++) words[w] = (i * 1024 + w + round) * 0x9e3779b97f4a7c15u;
                }
                for (size_t i = 0; i < REGIONS; i++) {
                    uint64_t *words = (uint64_t *)(all + i * 3 * PAGE);
                    for (size_t w = 0; w < 1024; w++)
                        if (words[w] != (i * 1024 + w + round) * 0x9e3779b97f4a7c15u) {
                            printf("region %zu, word %zu: %llx\n", i, w, (unsigned long long)words[w]);
                            return 1;
                        }
                }
            }
            puts("as written");
            return 0;
        }"#;
    let Some(end) = within("40M", source) else { return };
    assert_eq!(end, (Some(0), "as written\n".to_owned()));
}

#[test]
fn a_thousand_threads_fault_at_once_on_one_region() {
    let source = r#"#define _GNU_SOURCE
        #include <pthread.h>
        #include <stdatomic.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <sys/mman.h>
        enum { THREADS = 1000, PAGES = 8, ROUNDS = 3 };
        static uint64_t *all;
        static pthread_barrier_t barrier;
        static _Atomic int wrong;
        static uint64_t word(uint64_t page, uint64_t round) { return (page + round * 77777) * 0x9e3779b97f4a7c15u; }
        // Pages of a thread are far from each other, between those of all others.
        static uint64_t *at(uint64_t page) { return all + page * 512; }
        static void *work(void *argument) {
            uint64_t thread = (uintptr_t)argument;
            for (uint64_t round = 0; round < ROUNDS; round++) {
                pthread_barrier_wait(&barrier);
                for (uint64_t i = 0; i < PAGES; i++) {
                    uint64_t page = i * THREADS + thread;
                    for (int w = 0; w < 512; w++) at(page)[w] = word(page, round) + w;
                }
                pthread_barrier_wait(&barrier);
                // Data that another thread has written.
                for (uint64_t i = 0; i < PAGES; i++) {
                    uint64_t page = i * THREADS + (thread + 499) % THREADS;
                    for (int w = 0; w < 512; w++) if (at(page)[w] != word(page, round) + w) { wrong++; break; }
                }
            }
            return 0;
        }
        int main(void) {
            all = mmap(0, (size_t)THREADS * PAGES * 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            pthread_attr_t small;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, 64 << 10);
            pthread_barrier_init(&barrier, 0, THREADS);
            static pthread_t threads[THREADS];
            for (uintptr_t i = 0; i < THREADS; i++)
                if (pthread_create(&threads[i], &small, work, (void *)i)) return 2;
            for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
            printf("%d wrong\n", wrong);
            return 0;
        }"#;
    let Some(end) = within("20M", source) else { return };
    assert_eq!(end, (Some(0), "0 wrong\n".to_owned()));
}

#[test]
fn where_no_more_can_be_had_malloc_says_so() {
    let source = r#"#include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/resource.h>
        enum { MOST = 1000, WORDS = 1 << 17 };
        int main(void) {
            static uint64_t *all[MOST];
            struct rlimit limit = { 64 << 20, 64 << 20 };
            if (setrlimit(RLIMIT_AS, &limit)) return 2;
            int count = 0;
            for (; count < MOST && (all[count] = malloc(WORDS * 8)); count++)
                for (uint64_t w = 0; w < WORDS; w++) all[count][w] = (count * WORDS + w) * 0x9e3779b97f4a7c15u;
            for (int i = 0; i < count; i++)
                for (uint64_t w = 0; w < WORDS; w++)
                    if (all[i][w] != (i * WORDS + w) * 0x9e3779b97f4a7c15u) { puts("not as written"); return 1; }
            puts(count >= 48 && count < 64 ? "as much as there is" : "more or less");
            return 0;
        }"#;
    let Some(end) = within("16M", source) else { return };
    assert_eq!(end, (Some(0), "as much as there is\n".to_owned()));
}
