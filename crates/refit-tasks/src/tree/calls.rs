//! Each call that a stop can end, or cut short, returns what it returns where nobody stops its thread: the rows of
//! [`refit_sys::restart`]'s table, as those of the program that `refit-code` tests splicing with.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use refit_sys::process;

use super::{After, Tree};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../refit-code/tests/splicing/calls.c");
/// How often one that waits is stopped before it gets what it waits for.
const STOPS: usize = 5;
/// Not part of what is tested: a call that is not over by then never ends.
const NEVER: Duration = Duration::from_secs(30);

fn program() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, std::path::PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls");
        let mut compile = Command::new("cc");
        let built = compile.args(["-O2", "-pthread", "-o"]).arg(&path).arg(SOURCE).status();
        assert!(built.expect("a compiler").success());
        (folder, path)
    });
    path
}

/// The program, in a call.
struct Caller {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // Whoever followed may have been told of its end.
        let _ = self.child.wait();
    }
}

impl Caller {
    fn of(row: &str) -> Self {
        let mut command = Command::new(program());
        command.arg(row).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let output = child.stdout.take().expect("a pipe");
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits until its first thread waits in a call.
    fn until_it_waits(&self) {
        let asleep = || process::life(self.child.id()).is_some_and(|life| life.state == b'S');
        let begun = Instant::now();
        while !(asleep() && process::waits(self.child.id()).is_some_and(|one| one.call.is_some())) {
            assert!(begun.elapsed() < NEVER, "it does not wait");
            thread::yield_now();
        }
    }
}

fn stop(tree: &Arc<Tree>, process: u32) {
    // It may have ended.
    let _ = tree.order(process, Duration::from_secs(20), |_, _| ((), After::GoOn));
}

/// What the row says, if this host has what it needs.
fn told(row: &str, by_time: bool, followed: bool) -> Option<String> {
    let mut caller = Caller::of(row);
    let first = caller.lines.recv_timeout(NEVER).expect("it begins");
    if first != "ready" {
        println!("skipped: {row}: {first}");
        return None;
    }
    let (process, tree) = (caller.child.id(), Arc::new(Tree::default()));
    let follows = followed.then(|| {
        let (tell, told) = mpsc::channel();
        let tree = Arc::clone(&tree);
        let follows = thread::spawn(move || {
            tree.follow(process, || tell.send(()).map_err(std::io::Error::other))
        });
        // It may have ended, by its time limit.
        let _ = told.recv();
        follows
    });
    if row != "getrandom" && !by_time {
        for _ in 0..if followed { STOPS } else { 0 } {
            caller.until_it_waits();
            stop(&tree, process);
        }
        caller.until_it_waits();
    }
    let _ = caller.child.stdin.as_mut().expect("a pipe").write_all(b"go\n");
    let begun = Instant::now();
    let line = loop {
        match caller.lines.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => break line,
            Err(_) if begun.elapsed() >= NEVER => break format!("{row}: does not end"),
            Err(_) if followed => stop(&tree, process),
            Err(_) => {}
        }
    };
    let _ = caller.child.kill();
    if let Some(follows) = follows {
        // One that has ended before cannot be followed. Whoever waits for the child before that takes its stops from who follows.
        let _ = follows.join().expect("no panic");
    }
    Some(line)
}

#[test]
fn every_row_of_the_table_is_told_as_where_nobody_stops() {
    let output = Command::new(program()).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut differ = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let (row, by_time) = (words[0], words[2] == "time");
        let Some(undisturbed) = told(row, by_time, false) else { continue };
        let stopped = told(row, by_time, true).expect("this host has it");
        if stopped != undisturbed {
            differ.push(format!("{stopped}; undisturbed {undisturbed}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
