//! Unmodified programs answer the same while all their functions are watched, while all state that
//! is considered dead at the beginning and end of functions is poisoned, and afterwards; and
//! nothing is left in them. The same holds with all blocks poisoned.
//!
//! Each program answers numbers line by line. The expected answers come from an unwatched process
//! of the same program. `ci/programs.sh` runs this for longer, and with servers under load.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_probe::{modules, sites};
use refit_splice::process::Program;
use refit_splice::{Action, Installed, Plan, remains};

/// A program that answers.
struct Answerer {
    child: Child,
    stdin: ChildStdin,
    answers: BufReader<ChildStdout>,
    question: fn(u32) -> String,
    next: u32,
}

impl Answerer {
    fn start(command: &[&str], question: fn(u32) -> String) -> Self {
        let mut child = Command::new(command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, answers, question, next: 1 }
    }

    /// Returns the answers to the next numbers.
    fn ask(&mut self, times: u32) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..times {
            writeln!(self.stdin, "{}", (self.question)(self.next)).expect("it listens");
            self.next += 1;
            let mut line = String::new();
            self.answers.read_line(&mut line).expect("an answer");
            assert!(!line.is_empty(), "it has ended: {:?}", self.child.wait());
            lines.push(line);
        }
        lines
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the possible remains of probes: mapped code, open files, signal dispositions, the
    /// tracer.
    fn traces(&self) -> Vec<String> {
        let program = Program::open(self.id()).expect("a child of ours");
        let mappings = program.mappings().expect("it runs");
        let code = mappings.iter().filter(|one| one.executable || one.shared);
        let mut traces: Vec<_> =
            code.map(|one| format!("{:x?} {:?}", one.range, one.name)).collect();
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("its files");
        traces.push(format!("{} files", files.count()));
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let kept = ["TracerPid", "SigBlk", "SigIgn", "SigCgt"];
        let status = status.expect("its status");
        let lines = status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
        traces.extend(lines.map(str::to_owned));
        traces
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refit() -> Command {
    Command::new(env!("CARGO_BIN_EXE_refit"))
}

/// Watches everything with `refit probe` while `work` is done.
fn watched<R>(id: u32, probe: &str, work: impl FnOnce() -> R) -> R {
    let mut child = refit()
        .args(["--json", "probe", "-p", &id.to_string(), "-e", probe])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("watching") {
        line.clear();
        assert_ne!(errors.read_line(&mut line).expect("a line"), 0, "refit has ended: {probe}");
    }
    let result = work();
    let process = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a number");
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    assert!(child.wait().expect("its end").success(), "{probe}");
    result
}

/// Poisons the dead state at the beginning of each block of all code that the program runs.
fn poison_blocks(program: &Program) -> Installed {
    let mut all = Vec::new();
    for mapped in modules::of(program).expect("it runs") {
        let module = mapped.open().expect("an ELF file");
        let bias = mapped.bias(module.image()).expect("what is mapped is the file");
        let functions = (0..module.functions().len()).map(|number| FunctionId(number as u32));
        let own = |id: &FunctionId| !module.function(*id).sources.contains(Sources::STUB);
        for id in functions.filter(own) {
            all.extend(blocks(&module, id, bias));
        }
    }
    all.sort_by_key(|site| site.address);
    all.dedup_by_key(|site| site.address);
    let (plan, _) = Plan::new(all);
    assert!(plan.len() > 100, "{} sites", plan.len());
    Installed::new(program, &plan, 0, None).expect("put in")
}

fn blocks(module: &Module, id: FunctionId, bias: u64) -> Vec<refit_splice::Site> {
    let flow = module.flow(id);
    let begins: Vec<_> = flow.blocks().iter().map(|block| block.start).collect();
    sites::before_each(module, id, bias, &begins, |_| vec![Action::POISON.into()])
}

fn nothing_is_left(answerer: &Answerer, before: &[String]) {
    assert_eq!(answerer.traces(), before);
    let verified = refit().args(["repair", "--verify", "-p", &answerer.id().to_string()]).output();
    let verified = verified.expect("refit");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// The number of numbers that are asked at a time.
const EACH: u32 = 5;

/// Returns the number of rounds.
fn rounds() -> u32 {
    std::env::var("REFIT_PROGRAMS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn answers_the_same(command: &[&str], question: fn(u32) -> String) {
    let (mut left_alone, mut probed) =
        (Answerer::start(command, question), Answerer::start(command, question));
    // Code that is loaded at its first use is loaded then.
    assert_eq!(probed.ask(EACH), left_alone.ask(EACH), "{command:?}: without probes");
    let before = probed.traces();
    for _ in 0..rounds() {
        for probe in ["uprobe:*:* { count, latency }", "uprobe:*:* { latency, poison }"] {
            let answers = watched(probed.id(), probe, || probed.ask(EACH));
            assert_eq!(answers, left_alone.ask(EACH), "{command:?}: {probe}");
            nothing_is_left(&probed, &before);
            assert_eq!(probed.ask(EACH), left_alone.ask(EACH), "{command:?}: after {probe}");
        }
        poisoned_in_blocks(&mut probed, &mut left_alone);
        nothing_is_left(&probed, &before);
    }
}

fn poisoned_in_blocks(probed: &mut Answerer, left_alone: &mut Answerer) {
    let program = Program::open(probed.id()).expect("a child of ours");
    let installed = poison_blocks(&program);
    assert_eq!(probed.ask(EACH), left_alone.ask(EACH), "poison in blocks");
    remains::repair(&program).expect("taken out");
    // An area stays as long as a thread would return to it.
    while remains::find(&program).is_ok_and(|left| !left.is_empty()) {
        assert_eq!(probed.ask(1), left_alone.ask(1), "poison is taken out");
        remains::repair(&program).expect("taken out");
    }
    drop(installed);
    assert_eq!(probed.ask(EACH), left_alone.ask(EACH), "after poison in blocks");
}

fn number(number: u32) -> String {
    number.to_string()
}

/// Builds a program of `tests/programs`.
fn built(folder: &Path, compiler: &[&str], source: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let path = folder.join("answer");
    let made = Command::new(compiler[0])
        .args(&compiler[1..])
        .arg("-o")
        .args([&path, &source])
        .output()
        .unwrap_or_else(|error| panic!("{compiler:?}: {error}"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    path.to_str().expect("a path").to_owned()
}

fn built_answers_the_same(compiler: &[&str], source: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    answers_the_same(&[&built(folder.path(), compiler, source)], number);
}

#[test]
fn a_database_answers_the_same() {
    let question = |number| {
        format!(
            "with recursive c(x) as (select {number} union all select x * 7 % 1009 from c limit 300) \
             select count(distinct x), group_concat(x, ''), round(avg(x), 3) from c where x % 3 <> 1;"
        )
    };
    answers_the_same(&["sqlite3", "-batch", ":memory:"], question);
}

#[test]
fn an_interpreter_answers_the_same() {
    let script = "\
import sys, json, hashlib, re, collections
for line in sys.stdin:
    number = int(line)
    text = json.dumps({str(n): [n * number, n / 7] for n in range(50)})
    try:
        [][number]
    except IndexError as error:
        told = repr(error)
    words = collections.Counter(re.findall('[0-9]+', text)).most_common(2)
    print(hashlib.sha256(text.encode()).hexdigest(), told, words, number ** 70, flush=True)
";
    answers_the_same(&["/usr/bin/python3", "-c", script], number);
}

#[test]
fn a_shell_answers_the_same() {
    let script = "while read n; do x=; for i in 1 2 3 4 5 6 7; do x=$x$((i * n)); done; \
                  y=$(echo \"${x//1/one}\" | tr a-z A-Z); [[ $y =~ ([0-9]+) ]]; \
                  printf '%s %05d %s\\n' \"$y\" \"$n\" \"${BASH_REMATCH[1]}\"; done";
    answers_the_same(&["bash", "-c", script], number);
}

#[test]
fn a_program_that_throws_answers_the_same() {
    built_answers_the_same(&["c++", "-O2"], "answer.cpp");
}

#[test]
fn a_program_with_threads_and_signals_answers_the_same() {
    built_answers_the_same(&["cc", "-O2", "-pthread"], "answer.c");
}

#[test]
fn a_static_program_answers_the_same() {
    built_answers_the_same(&["cc", "-O2", "-pthread", "-static"], "answer.c");
}

#[test]
fn a_program_in_rust_answers_the_same() {
    built_answers_the_same(&["rustc", "--edition=2024", "-O"], "answer.rs");
}

/// Returns whether there is such a compiler.
fn there(compiler: &str, version: &str) -> bool {
    let there = Command::new(compiler).arg(version).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: there is no {compiler}");
    }
    there
}

#[test]
fn a_program_in_go_answers_the_same() {
    if there("go", "version") {
        built_answers_the_same(&["go", "build"], "answer.go");
    }
}

#[test]
fn a_program_of_another_c_library_answers_the_same() {
    if there("musl-gcc", "--version") {
        built_answers_the_same(&["musl-gcc", "-O2", "-static"], "answer.c");
    }
}

/// Runs a program with all entries and exits watched, or poisoned, from its beginning; returns its
/// output.
fn through_probes(probe: &str, command: &[&str], into: &Path) -> Vec<u8> {
    let output = refit()
        .args(["--json", "probe", "-e", probe, "--"])
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .expect("refit");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {probe}: {said}");
    std::fs::read(into).expect("written")
}

#[test]
fn what_compresses_with_two_threads_writes_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    let library = std::fs::read("/usr/lib/x86_64-linux-gnu/libc.so.6").expect("the C library");
    std::fs::write(&from, &library[..600_000]).expect("written");
    let script =
        format!("exec xz -T2 --block-size=200000 -c {} > {}", from.display(), into.display());
    let plain = Command::new("sh").args(["-c", &script]).status().expect("xz");
    assert!(plain.success());
    let plain = std::fs::read(&into).expect("written");
    // xz writes to a file of its own: with `-k`, beside the original.
    let beside = folder.path().join("from.xz");
    let from = from.to_str().expect("a path");
    let command = ["xz", "-T2", "--block-size=200000", "-kf", from];
    for probe in ["uprobe:*:* { count, latency }", "uprobe:*:* { latency, poison }"] {
        assert!(through_probes(probe, &command, &beside) == plain, "{probe}");
    }
}
