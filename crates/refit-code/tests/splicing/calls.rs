//! Each call that a stop can end, or cut short, returns what it returns where nobody stops it: the rows of [`restart`]'s table.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use refit_code::process::{Program, Refusal};
use refit_sys::{process, restart};

use super::victim::{Built, build, until};

/// Calls of the table that wait for nobody, or on hardware only.
const WAIT_FOR_NOBODY: [i64; 2] = [libc::SYS_pwrite64, libc::SYS_copy_file_range];
/// How often one that waits is stopped before it gets what it waits for.
const STOPS: usize = 5;
/// Not part of what is tested: a call that is not over by then never ends.
const NEVER: Duration = Duration::from_secs(30);

fn program() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "calls.c", &["-pthread"])).path()
}

/// A row of the program.
struct Row {
    name: String,
    number: i64,
    /// Whether it ends by its time limit alone.
    by_time: bool,
}

fn rows() -> Vec<Row> {
    let output = Command::new(program()).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let row = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let number = words[1].parse().expect("a number");
        Row { name: words[0].to_owned(), number, by_time: words[2] == "time" }
    };
    text.lines().map(row).collect()
}

/// The program, in a call.
struct Caller {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Caller {
    fn of(row: &Row) -> Self {
        let mut command = Command::new(program());
        command.arg(&row.name).stdin(Stdio::piped()).stdout(Stdio::piped());
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

    fn go(&mut self) {
        // It may have ended, by its time limit.
        let _ = self.child.stdin.as_mut().expect("a pipe").write_all(b"go\n");
    }

    /// Stops it once; whether it is still there.
    fn stop(&self) -> bool {
        let Ok(program) = Program::open(self.child.id()) else { return false };
        let stood = program.stand_still(Duration::from_secs(60), |_| Ok::<_, Refusal>(()));
        match stood {
            Ok(_) => true,
            Err(refusal) => {
                // It ends meanwhile, which the kernel tells in several ways; nothing else stands in the way.
                let begun = Instant::now();
                while !program.ended() {
                    assert!(begun.elapsed() < NEVER, "{refusal}");
                    thread::yield_now();
                }
                false
            }
        }
    }

    /// Whether its first thread waits, in that call, or in what has taken its place.
    fn waits(&self) -> bool {
        let asleep = process::life(self.child.id()).is_some_and(|life| life.state == b'S');
        asleep && process::waits(self.child.id()).is_some_and(|waits| waits.call.is_some())
    }
}

/// What the row says, if this host has what it needs.
fn told(row: &Row, stops: bool) -> Option<String> {
    let mut caller = Caller::of(row);
    let first = caller.lines.recv_timeout(Duration::from_secs(60)).expect("it begins");
    if first != "ready" {
        println!("skipped: {}: {first}", row.name);
        return None;
    }
    // That one only works.
    if row.number != libc::SYS_getrandom {
        for _ in 0..if stops && !row.by_time { STOPS } else { 0 } {
            until(|| caller.waits());
            assert!(caller.stop(), "{}", row.name);
        }
        until(|| caller.waits());
    }
    caller.go();
    let begun = Instant::now();
    while begun.elapsed() < NEVER {
        match caller.lines.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => return Some(line),
            Err(_) if stops => drop(caller.stop()),
            Err(_) => {}
        }
    }
    Some(format!("{}: does not end", row.name))
}

#[test]
fn every_row_of_the_table_is_told_as_where_nobody_stops() {
    let rows = rows();
    let tested = |number: u64| {
        let number = number.cast_signed();
        WAIT_FOR_NOBODY.contains(&number) || rows.iter().any(|row| row.number == number)
    };
    let missing: Vec<u64> = restart::rows().filter(|number| !tested(*number)).collect();
    assert!(missing.is_empty(), "calls of the table that are not tested: {missing:?}");
    let mut differ = Vec::new();
    for row in &rows {
        let Some(undisturbed) = told(row, false) else { continue };
        let stopped = told(row, true).expect("this host has it");
        if stopped != undisturbed {
            differ.push(format!("{stopped}; undisturbed {undisturbed}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
