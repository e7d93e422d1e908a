//! A program that checks itself while refit works on it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use refit_sys::process::{Doing, doing};
use rustix::process::{Pid, Signal, kill_process};

use crate::shell::refit;

/// The watched program; killed on drop.
pub(crate) struct Victim {
    pub(crate) child: Child,
    answers: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Victim {
    /// Builds and starts the program with this source.
    pub(crate) fn start(source: &str) -> Self {
        Self::start_under(source, &[])
    }

    /// As [`start`](Self::start), by `refit` with these arguments, unless there are none.
    pub(crate) fn start_under(source: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("victim");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/probe").join(source);
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .args([&path, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        let mut command = match arguments {
            [] => Command::new(&path),
            _ => refit(arguments),
        };
        if !arguments.is_empty() {
            command.arg(&path);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the victim");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut victim = Self { child, answers, _folder: folder };
        assert_eq!(victim.line(), "begun");
        victim
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        assert!(!line.is_empty(), "it has ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    /// Lets it check that all its threads continue, and that all results are right.
    pub(crate) fn check(&mut self) {
        assert_eq!(self.ask(), "right");
    }

    /// Lets it check itself, and returns its answer.
    pub(crate) fn ask(&mut self) -> String {
        self.tell("")
    }

    /// Writes it a line, and returns its answer.
    pub(crate) fn tell(&mut self, line: &str) -> String {
        let told = writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}");
        assert!(told.is_ok(), "it has ended: {:?}", self.child.wait());
        self.line()
    }

    /// Sends it a signal, and waits until it gives this answer.
    pub(crate) fn signal(&mut self, signal: Signal, answer: &str) {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).expect("it is there");
        while self.ask() != answer {}
    }

    /// Waits until one of its threads is in this system call, and off the processor.
    pub(crate) fn until_a_thread_waits_in(&self, number: i64) {
        while !doing(self.child.id()).contains(&Doing::Call(number)) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
