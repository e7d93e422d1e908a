//! Running a program to its end, which comes in time or is made.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How long a program may take. Not part of what is tested: whoever needs that long hangs.
#[derive(Clone, Copy, Debug)]
pub struct Limit(pub Duration);

impl Limit {
    /// A limit in seconds.
    pub fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

impl Ran {
    /// The output of a program that succeeded.
    ///
    /// # Panics
    /// It did not.
    pub fn success(self) -> String {
        assert!(self.status.success(), "{}\n{}\n{}", self.status, self.output, self.errors);
        self.output
    }
}

/// The program with all it has started; ended when this is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            if let Some(group) = Pid::from_raw(self.0.id() as i32) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }
}

/// Runs a program with `input` as its standard input.
///
/// # Panics
/// It could not be started, or took longer than `limit`; then it is killed with all that it has started.
pub fn run(command: &mut Command, input: &str, limit: Limit) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let what = format!("{command:?}");
    let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
    let mut group = Group(child);
    let until = Instant::now() + limit.0;
    let (stdin, stdout, stderr) =
        (group.0.stdin.take(), group.0.stdout.take(), group.0.stderr.take());
    thread::scope(|scope| {
        scope.spawn(|| {
            // A program that does not read everything is free not to.
            let _ = stdin.map(|mut stdin| std::io::Write::write_all(&mut stdin, input.as_bytes()));
        });
        let output = scope.spawn(|| all(stdout));
        let errors = scope.spawn(|| all(stderr));
        let status = loop {
            match group.0.try_wait().expect("a child can be waited for") {
                Some(status) => break Some(status),
                None if Instant::now() >= until => break None,
                None => thread::sleep(LOOK),
            }
        };
        if status.is_none() {
            // Ends the threads, too: nobody holds the other ends of the pipes.
            drop(group);
        }
        let (output, errors) =
            (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
        let Some(status) = status else {
            panic!("{what} did not end within {:?}\n{output}\n{errors}", limit.0)
        };
        Ran { status, output, errors }
    })
}

fn all(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    let _ = from.map(|mut from| from.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
