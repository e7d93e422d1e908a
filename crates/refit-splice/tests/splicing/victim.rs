//! A program to splice into, built with the C compiler, and commands to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use refit_splice::process::Program;

/// A running victim; killed on drop, with the children that it reported.
pub(crate) struct Victim {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    addresses: BTreeMap<String, u64>,
    forked: Vec<i32>,
}

/// Builds the victim once for all tests of a binary.
fn binary() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "splicing/victim.c", &["-pthread"])).path()
}

/// A program that was built; deleted on drop.
pub(crate) struct Built {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Built {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Builds a program of the crate under test; `source` is its path below `tests`.
pub(crate) fn build(with: &str, source: &str, args: &[&str]) -> Built {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("victim");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    // Functions of Go would be inlined otherwise.
    let usual: &[&str] = match with {
        "go" => &["build", "-gcflags=-l"],
        _ => &["-O2", "-g0", "-Wall", "-Werror"],
    };
    let built = Command::new(with)
        .args(usual)
        .args(args)
        .args([Path::new("-o"), &path, &source])
        .status()
        .expect("a compiler");
    assert!(built.success());
    Built { path, _folder: folder }
}

impl Victim {
    pub(crate) fn start() -> Self {
        Self::of(binary())
    }

    /// Starts this program.
    pub(crate) fn of(path: &Path) -> Self {
        Self::with(path, &[])
    }

    /// Starts this program with arguments.
    pub(crate) fn with(path: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the victim");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut victim =
            Self { child, stdin, stdout, addresses: BTreeMap::new(), forked: Vec::new() };
        let line = victim.line();
        let words: Vec<_> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            let address = u64::from_str_radix(pair[1].trim_start_matches("0x"), 16);
            victim.addresses.insert(pair[0].to_owned(), address.expect("an address"));
        }
        victim
    }

    pub(crate) fn program(&self) -> Program {
        Program::open(self.child.id()).expect("a child of ours")
    }

    pub(crate) fn address(&self, function: &str) -> u64 {
        self.addresses[function]
    }

    /// Has two threads call each function `times` times; returns the sums of their results.
    pub(crate) fn work(&mut self, times: u32) -> String {
        self.say(&format!("work {times}"));
        self.line()
    }

    /// Has two threads call the functions, and a signal handler run, until [`end`](Self::end).
    pub(crate) fn begin(&mut self) {
        self.say("begin");
        assert_eq!(self.line(), "begun");
    }

    /// Has two threads wait in calls that end with `EINTR` when they are interrupted.
    pub(crate) fn wait_in_calls(&mut self) {
        self.say("wait");
        assert_eq!(self.line(), "begun");
    }

    /// Has a thread lend its memory to a child (`vfork`), until [`end`](Self::end): it cannot be
    /// stopped meanwhile.
    pub(crate) fn lend(&mut self) {
        self.say("vfork");
        assert_eq!(self.line(), "borrowed");
    }

    pub(crate) fn end(&mut self) -> String {
        self.say("end");
        self.line()
    }

    pub(crate) fn fork(&mut self) -> Program {
        self.say("fork");
        let child: i32 = self.line().parse().expect("a number");
        self.forked.push(child);
        Program::open(child.cast_unsigned()).expect("a grandchild of ours")
    }

    /// Returns everything that splicing could leave behind: its code, its mappings except for the
    /// sizes of heap and stacks, the number of its open files, its tracer.
    pub(crate) fn traces(&self) -> (Vec<u8>, Vec<String>, usize, String) {
        let program = self.program();
        let mappings = program.mappings().expect("its mappings");
        let code = mappings
            .iter()
            .find(|mapping| mapping.range.contains(&self.address("work")))
            .expect("its code");
        let mut bytes = vec![0; (code.range.end - code.range.start) as usize];
        program.read(code.range.start, &mut bytes).expect("its code");
        let named = mappings.iter().filter(|mapping| mapping.executable || mapping.shared);
        let names =
            named.map(|mapping| format!("{:x?} {:?}", mapping.range, mapping.name)).collect();
        let id = self.child.id();
        let files = std::fs::read_dir(format!("/proc/{id}/fd")).expect("its files").count();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
        let tracer = status.lines().find(|line| line.starts_with("TracerPid")).expect("a line");
        (bytes, names, files, tracer.to_owned())
    }

    /// Sends a command, and waits for the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("it listens");
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an answer");
        assert!(!line.is_empty(), "it has ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        for &child in &self.forked {
            let process = rustix::process::Pid::from_raw(child).expect("a number");
            // It may have ended already.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never");
        std::thread::sleep(Duration::from_millis(1));
    }
}
