//! Runs the program of `calls.c`, which makes one system call; tests of other crates that stop its
//! threads use it too.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use refit_sys::process;

/// A call that takes longer than this never ends.
pub(crate) const NEVER: Duration = Duration::from_secs(30);
/// Number of times that a waiting call is stopped before its event happens.
pub(crate) const STOPS: usize = 5;
/// Number of times that a call is stopped while its event happens. Without a limit, a program that
/// gets no processor between two stops would not end on a busy machine.
pub(crate) const STOPS_AT_ITS_END: usize = 2000;

/// A row of the program: a system call, and the event that ends it.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) number: i64,
    /// Whether only its time limit ends it.
    pub(crate) by_time: bool,
}

impl Row {
    /// Returns all rows of the program.
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

    /// Whether its call waits for an event; `getrandom` only computes.
    pub(crate) fn waits(&self) -> bool {
        self.number != libc::SYS_getrandom
    }
}

/// A process that makes the call of a row.
pub(crate) struct Caller {
    child: Child,
    /// Lines that it prints.
    pub(crate) lines: Receiver<String>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.kill();
        // A tracer may have received its exit status instead.
        let _ = self.child.wait();
    }
}

impl Caller {
    /// Starts it. `None` if this host lacks what the row needs, which is printed.
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

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has the other thread of the program cause the event that ends the call.
    pub(crate) fn go(&mut self) {
        // The process may have ended by its time limit.
        let _ = self.child.stdin.as_mut().expect("a pipe").write_all(b"go\n");
    }

    /// Kills it, if it has not ended.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Whether its first thread waits in a call: that of the row, or one that replaces it.
    pub(crate) fn waits(&self) -> bool {
        let asleep = process::life(self.id()).is_some_and(|life| life.state == b'S');
        asleep && process::waits(self.id()).is_some_and(|waits| waits.call.is_some())
    }
}
