//! A program that is watched, and the command that watches it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

/// A database at work: 200010000.
pub(crate) const SUM: &str = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) \
                   select sum(x) from c";

/// A database program that answers line by line; killed when it is dropped.
pub(crate) struct Shell {
    pub(crate) child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Shell {
    pub(crate) fn start() -> Self {
        let mut child = Command::new("sqlite3")
            .args(["-batch", ":memory:"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sqlite3");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut shell = Self { child, answers };
        assert_eq!(shell.ask("select 40 + 2;"), "42");
        shell
    }

    pub(crate) fn say(&mut self, question: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{question}").expect("it listens");
    }

    pub(crate) fn ask(&mut self, question: &str) -> String {
        self.say(question);
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn refit(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    // Profiles and the journal are not those of the user.
    command.args(arguments).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    refit(arguments).output().expect("refit")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn verified(id: &str) {
    let output = run(&["repair", "-p", id, "--verify"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Checks that all code of a process is as on disk; memory of refit's may be mapped.
pub(crate) fn restored(id: &str) {
    let checked = run(&["repair", "-p", id, "--verify"]);
    let told = text(&checked.stdout);
    assert!(told.contains("all as on disk"), "{told}{}", text(&checked.stderr));
}

/// Waits until refit says on standard error that it watches.
pub(crate) fn watching(child: &mut Child) -> BufReader<std::process::ChildStderr> {
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    loop {
        let mut line = String::new();
        assert_ne!(errors.read_line(&mut line).expect("a line"), 0, "refit ended");
        if line.contains("watching") {
            return errors;
        }
    }
}

pub(crate) fn interrupt(child: &Child) {
    let process = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a number");
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
}

/// Ends refit by Ctrl-C, which has to succeed; adds what it still prints.
pub(crate) fn ended(
    mut child: Child,
    output: &mut impl Read,
    errors: &mut impl Read,
    printed: &mut String,
) {
    interrupt(&child);
    output.read_to_string(printed).expect("the end");
    let mut said = String::new();
    errors.read_to_string(&mut said).expect("the end");
    assert!(child.wait().expect("refit").success(), "{said}");
}
