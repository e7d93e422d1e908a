//! Tests of `refit run --memory`, `refit limit` and `refit show PID`: programs within a limit, and
//! the reports about them.

mod stage;

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use stage::Stage;
use stage::running::{Running, build, can_limit, until};

const MIB: u64 = 1 << 20;
/// The memory that the program writes, in MiB.
const WHOLE: u64 = 48;

/// A program that, for each line of its input, writes its memory anew, page by page, compares it,
/// and reports the result.
const PATTERN: &str = r#"#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
    size_t words = (size_t)atoi(argv[1]) << 17, page = 512;
    uint64_t *all = aligned_alloc(4096, words * 8);
    char line[16];
    for (uint64_t round = 1; fgets(line, sizeof line, stdin); round++) {
        if (line[0] == 'f')
            madvise(all, words * 8, MADV_FREE);
        // Half of the pages can be compressed.
        for (size_t i = 0; i < words; i++)
            all[i] = i / page % 2 ? (i + round) * 0x9e3779b97f4a7c15u : i / page ^ round;
        for (size_t i = 0; i < words; i++)
            if (all[i] != (i / page % 2 ? (i + round) * 0x9e3779b97f4a7c15u : i / page ^ round)) {
                printf("word %zu is %llx\n", i, (unsigned long long)all[i]);
                return 1;
            }
        puts("as written");
        fflush(stdout);
    }
    return 0;
}
"#;

/// The running program, which advances on command.
struct Pattern<'a> {
    stage: &'a Stage,
    running: Running,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl<'a> Pattern<'a> {
    fn start(stage: &'a Stage, options: &[&str]) -> Self {
        let program = build(stage, "pattern", PATTERN);
        let mut running =
            Running::start(stage, options, &[&program, &WHOLE.to_string()], "pattern");
        let lines = running.0.stdin.take().expect("a pipe");
        let answers = BufReader::new(running.0.stdout.take().expect("a pipe"));
        Self { stage, running, lines, answers }
    }

    fn begin(&mut self) {
        self.lines.write_all(b"\n").expect("it reads");
    }

    /// Begins a round, in which the program first discards all of its memory.
    fn begin_free(&mut self) {
        self.lines.write_all(b"f\n").expect("it reads");
    }

    fn end(&mut self) {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it writes");
        assert_eq!(answer, "as written\n");
    }

    /// Runs one whole round.
    fn round(&mut self) {
        self.begin();
        self.end();
    }

    fn id(&self) -> String {
        self.running.id().to_string()
    }

    /// Sets its limit; returns the report about the previous one.
    fn limit(&self, limit: &str) -> Value {
        let (code, stdout, stderr) = self.stage.run(&["--json", "limit", &self.id(), limit]);
        assert_eq!((code, &*stderr), (0, ""));
        serde_json::from_str(&stdout).expect("one JSON object")
    }

    fn show(&self) -> Value {
        let (code, stdout, stderr) = self.stage.run(&["--json", "show", &self.id()]);
        assert_eq!((code, &*stderr), (0, ""));
        serde_json::from_str(&stdout).expect("one JSON object")
    }

    /// Swaps all objects of a kind.
    fn swap(&self, all: &str, to: &str) {
        until("a swap of all", || {
            // The swap of a region that ends after it was listed is refused.
            self.stage.run(&["swap", all, to, "--deadline", "50s"]).0 == 0
        });
    }

    /// Waits until its memory is within the limit.
    fn keeps_to(&self, mebibytes: u64) {
        until("less memory", || {
            let memory = &self.show()["memory"];
            let number = |value: &Value| value.as_u64().expect("a number");
            assert_eq!(memory["limit_bytes"], mebibytes * MIB);
            let has =
                number(&memory["resident_bytes"]) + number(&memory["store"]["compressed_bytes"]);
            has <= mebibytes * MIB && number(&memory["resident_bytes"]) > 0
        });
    }

    /// Returns the sum of a counter of all regions.
    fn sum(&self, what: &str) -> u64 {
        let shown = self.show();
        let regions = shown["regions"].as_array().expect("a list");
        regions.iter().map(|region| region[what].as_u64().expect("a number")).sum()
    }
}

#[test]
fn a_program_of_twice_its_limit_finds_what_it_has_written() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let mut pattern = Pattern::start(&stage, &["--memory", "24M"]);
    (0..3).for_each(|_| pattern.round());
    pattern.keeps_to(24);
    assert!(pattern.sum("evictions") >= 24 * MIB / 4096, "{}", pattern.show());
    assert!(pattern.sum("stored") >= 20 * MIB / 4096, "{}", pattern.show());
    assert!(pattern.sum("faults") > 0 && pattern.sum("around") > 0);
    let shown = pattern.show();
    assert_eq!((&shown["refused"], &shown["memory"]["lost"]), (&Value::Null, &0.into()));
    assert!(shown["memory"]["store"]["compressed"].as_u64() > Some(0), "{shown}");
    assert!(shown["memory"]["store"]["in_file"].as_u64() > Some(0), "{shown}");

    let (code, text, _) = stage.run(&["show", &pattern.id()]);
    assert_eq!(code, 0);
    let fact = |what: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(what));
        line.unwrap_or_else(|| panic!("{what}: {text}")).to_owned()
    };
    assert_eq!(fact("limit"), "  limit           24 MiB, for the whole program");
    assert!(fact("in memory").ends_with("is served"), "{text}");
    assert!(fact("out").ends_with("in the swap file"), "{text}");
    assert!(fact("START").ends_with("RETURNS  SERVED BY        NAME"), "{text}");
    assert!(text.contains("default, shared  [stack]\n"), "{text}");
    let instance = fact("instance").split_whitespace().last().expect("a number").to_owned();
    let (code, ..) = stage.run(&["--instance", &instance, "show", &pattern.id()]);
    assert_eq!(code, 0);
    pattern.round();
}

#[test]
fn a_limit_comes_and_goes_while_a_program_runs() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let mut pattern = Pattern::start(&stage, &[]);
    pattern.round();
    let none = pattern.show();
    assert_eq!(
        (&none["memory"]["limit_bytes"], &none["regions"]),
        (&Value::Null, &Value::Array(vec![]))
    );
    let mut before = Value::Null;
    for limit in [24, 40, 16, 24] {
        pattern.begin();
        let answer = pattern.limit(&format!("{limit}M"));
        pattern.end();
        assert_eq!(
            (&answer["was_bytes"], &answer["limit_bytes"]),
            (&before, &(limit * MIB).into())
        );
        before = answer["limit_bytes"].clone();
        pattern.round();
        pattern.keeps_to(limit);
    }
    let (code, text, _) = stage.run(&["limit", &pattern.id(), "none"]);
    assert!(code == 0 && text.starts_with("limit 24 MiB → none, for all"), "{text}");
    until("all of its pages", || {
        let shown = pattern.show();
        let out = &shown["memory"]["store"];
        out["compressed"] == 0 && out["in_file"] == 0 && shown["regions"] == Value::Array(vec![])
    });
    pattern.round();
    pattern.limit("16M");
    pattern.keeps_to(16);
    pattern.round();
}

#[test]
fn what_is_freed_lazily_is_within_the_limit_too() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let mut pattern = Pattern::start(&stage, &["--memory", "24M"]);
    for _ in 0..3 {
        pattern.round();
        pattern.begin_free();
        pattern.end();
        pattern.keeps_to(24);
    }
}

#[test]
fn caches_are_swapped_while_a_program_faults() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let mut pattern = Pattern::start(&stage, &["--memory", "24M"]);
    pattern.round();
    for to in ["partitioned", "sequential", "shared"] {
        pattern.begin();
        pattern.swap("anonymous:*", to);
        pattern.end();
        let (_, listed, _) = stage.run(&["--json", "ls", "anonymous:*", "--implementation", to]);
        assert!(listed.lines().count() > 0, "{listed}");
    }
    pattern.keeps_to(24);
}

#[test]
fn a_region_is_the_kernels_and_served_again_while_a_program_runs() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let mut pattern = Pattern::start(&stage, &["--memory", "24M"]);
    pattern.round();
    let native = |pattern: &Pattern, wanted: bool| {
        let shown = pattern.show();
        let regions = shown["regions"].as_array().expect("a list").clone();
        let large = regions.iter().max_by_key(|region| {
            region["end"].as_u64().expect("a number") - region["start"].as_u64().expect("a number")
        });
        large.is_some_and(|large| {
            large["native"] == wanted
                && large["region"] == if wanted { "native" } else { "default" }
                && (large["resident"].as_u64() > Some(0)) != wanted
                && (!wanted || large["stored"] == 0)
        })
    };
    for _ in 0..2 {
        // The program is in the middle of a round.
        pattern.begin();
        pattern.swap("region:*", "native");
        pattern.end();
        until("all of it in memory, and nobody's but the kernel's", || native(&pattern, true));
        let served = pattern.sum("faults");
        pattern.round();
        assert_eq!(pattern.sum("faults"), served, "a fault that was served");
        pattern.begin();
        pattern.swap("region:*", "default");
        pattern.end();
        until("what is served", || native(&pattern, false));
        pattern.keeps_to(24);
        pattern.round();
    }
}

#[test]
fn a_cache_that_is_gone_through_is_swapped_for_as_long_as_somebody_adapts() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let mut pattern = Pattern::start(&stage, &["--memory", "24M"]);
    pattern.round();
    let mut command = stage.refit(&["adapt", "anonymous:*"]);
    let adapts = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let swapped = |wanted: bool| {
        let sequential = ["--json", "ls", "anonymous:*", "--implementation", "sequential"];
        (stage.run(&sequential).1.lines().count() > 0) == wanted
    };
    until("a swap to what suits it", || {
        pattern.round();
        swapped(true)
    });
    (0..3).for_each(|_| pattern.round());
    kill_process(Pid::from_child(&adapts), Signal::INT).expect("it runs");
    let output = adapts.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && text.contains("shared → sequential "), "{text}");
    until("all put back", || {
        let (_, listed, _) = stage.run(&["--json", "ls", "anonymous:*"]);
        swapped(false) && !listed.contains("\"name\":\"sequential\"")
    });
    pattern.round();
    let refused = ["adapt", "--above", "40", "--below", "60"];
    stage.refuses(&refused, "swapping above 40 % and back below 60 % would never end");
}

#[test]
fn what_cannot_be_limited_is_refused_in_a_line() {
    let stage = Stage::new();
    let own = std::process::id().to_string();
    // Larger than any process number.
    let nobody = "4194305";
    for command in ["limit", "show"] {
        for (pid, says) in [
            (&*own, "the process does not run under refit; list those that do with `refit ps`"),
            (nobody, "no such process; list processes under refit with `refit ps`"),
        ] {
            let arguments = [command, pid, "64M"];
            stage.refuses(&arguments[..if command == "show" { 2 } else { 3 }], says);
        }
    }
    stage.refuses(&["--instance", nobody, "limit", &own, "64M"], "there is no instance");
    for (arguments, says) in [
        (&["limit", &own, "0"][..], "`0` is not a size"),
        (&["limit", &own, "1023K"], "a program needs at least 1 MiB"),
        (&["limit", &own, "much"], "`much` is not a size"),
        (&["limit", "0", "64M"], "0 is not in"),
        (&["limit", "pattern", "64M"], "invalid digit"),
        (&["limit", &own], "required"),
        (&["run", "--memory", "512K", "--", "true"], "a program needs at least 1 MiB"),
        (&["run", "--memory", "none", "--", "true"], "`none` is not a size"),
    ] {
        let (code, stdout, stderr) = stage.run(arguments);
        assert_eq!((code, &*stdout), (2, ""), "{arguments:?}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
}

#[test]
fn where_limits_do_not_work_no_program_begins_with_one() {
    let stage = Stage::new();
    if !can_limit(&stage) {
        return;
    }
    let without = |arguments: &[&str]| {
        let refit = stage.refit(arguments);
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]);
        command.arg(refit.get_program()).args(refit.get_args());
        command.env("REFIT_RUNTIME_DIR", stage.path("sockets"));
        let output = command.output().expect("setpriv is there");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, stdout, stderr) = without(&["run", "--memory", "24M", "--", "echo", "begun"]);
    assert_eq!((code, &*stdout), (Some(1), ""), "{stderr}");
    assert!(stderr.starts_with("refit: run echo: this user may not use userfaultfd"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let (_, stdout, _) = without(&["doctor"]);
    assert!(
        stdout.contains("missing  memory limits        this user may not use userfaultfd"),
        "{stdout}"
    );
    let (code, stdout, stderr) = without(&["run", "--", "echo", "begun"]);
    assert_eq!((code, &*stdout), (Some(0), "begun\n"), "{stderr}");
}
