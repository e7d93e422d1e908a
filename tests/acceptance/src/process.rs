//! Runs a program to its end, with a time limit.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The interval at which a running program is checked.
const LOOK: Duration = Duration::from_millis(5);

/// The time that a program may take. It is not a performance test: a program that takes so long
/// hangs.
#[derive(Clone, Copy, Debug)]
pub struct Limit(pub Duration);

impl Limit {
    /// Creates a limit in seconds.
    pub fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// The exit status and the output of a program.
#[derive(Debug)]
pub struct Ran {
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub output: String,
    /// The standard error.
    pub errors: String,
}

impl Ran {
    /// Returns the output of a program that succeeded.
    ///
    /// # Panics
    ///
    /// The program failed.
    pub fn success(self) -> String {
        assert!(self.status.success(), "{}\n{}\n{}", self.status, self.output, self.errors);
        self.output
    }
}

/// A program with all processes that it has started; killed on drop.
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
///
/// The program could not be started, or took longer than `limit`; in this case it is killed with
/// all processes that it has started.
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
            // A program need not read all of its input.
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
            // Also ends the threads that read the pipes, because no process holds the other ends
            // any more.
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
