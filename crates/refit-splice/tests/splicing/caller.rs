//! The program of `calls.c`, in a call; also for the tests of other crates that stop its threads.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use refit_sys::process;

/// A call that is not over by then never ends: no part of what is tested.
pub(crate) const NEVER: Duration = Duration::from_secs(30);
/// How often a call that waits is stopped before it gets what it waits for.
pub(crate) const STOPS: usize = 5;

/// A row of the program: a call, and who makes it end.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) number: i64,
    /// Whether it ends by its time limit alone.
    pub(crate) by_time: bool,
}

impl Row {
    /// All rows of the program.
    pub(crate) fn all(program: &Path) -> Vec<Self> {
        let output = Command::new(program).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let row = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let number = words[1].parse().expect("a number");
            Self { name: words[0].to_owned(), number, by_time: words[2] == "time" }
        };
        text.lines().map(row).collect()
    }

    /// Whether its call waits for something; `getrandom` only works.
    pub(crate) fn waits(&self) -> bool {
        self.number != libc::SYS_getrandom
    }
}

/// A process that makes the call of a row.
pub(crate) struct Caller {
    child: Child,
    /// What it writes.
    pub(crate) lines: Receiver<String>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.kill();
        // Whoever traces it may have been told of its end instead.
        let _ = self.child.wait();
    }
}

impl Caller {
    /// Starts it. `None`: this host lacks what the row needs, which is printed.
    pub(crate) fn of(program: &Path, row: &Row) -> Option<Self> {
        let mut command = Command::new(program);
        command.arg(&row.name).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let output = child.stdout.take().expect("a pipe");
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let caller = Self { child, lines };
        let first = caller.lines.recv_timeout(NEVER).expect("it begins");
        if first != "ready" {
            println!("skipped: {}: {first}", row.name);
            return None;
        }
        Some(caller)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has the other thread of the program do what makes the call end.
    pub(crate) fn go(&mut self) {
        // It may have ended, by its time limit.
        let _ = self.child.stdin.as_mut().expect("a pipe").write_all(b"go\n");
    }

    /// Kills it, if it has not ended.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Whether its first thread waits in a call: that of the row, or what has taken its place.
    pub(crate) fn waits(&self) -> bool {
        let asleep = process::life(self.id()).is_some_and(|life| life.state == b'S');
        asleep && process::waits(self.id()).is_some_and(|waits| waits.call.is_some())
    }
}
