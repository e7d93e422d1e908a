//! Helper processes of the tests: this very program, which plays one of several roles instead of
//! running the tests.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that names the role.
const ROLE: &str = "REFIT_TEST_ROLE";

/// A process that plays a role; killed on drop.
pub(crate) struct Helper {
    pub(crate) child: Child,
    /// Kept open, because [`pause`] lasts as long.
    _to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a process in a role; `variables` are added to its environment.
    pub(crate) fn start(role: &str, variables: &[(&str, &Path)]) -> Helper {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "helper::role", "--nocapture", "--quiet"])
            .env(ROLE, role)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be run");
        let to = child.stdin.take().expect("it is a pipe");
        let from = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Helper { child, _to: to, from }
    }

    /// Returns the next line of the process, without those of the test harness.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.from.read_line(&mut line).expect("it can be heard") > 0 {
            if let Some((_, said)) = line.split_once("SAYS ") {
                return said.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("it said nothing more");
    }

    /// Kills the process with `SIGKILL`; it stays a zombie until the value is dropped.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints a line for the process that started this one.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("SAYS {what}");
    std::io::stdout().flush().expect("somebody listens");
}

/// Waits until the process that started this one ends, or until this one is killed.
pub(crate) fn pause() {
    std::io::stdin().read_line(&mut String::new()).expect("somebody speaks");
}

/// Waits until a condition holds; a minute is longer than any machine needs.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::yield_now();
    }
}

/// Binds this thread, and the processes that it starts, to its current processor.
pub(crate) fn bind_here() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(refit_sys::processor::current());
    rustix::thread::sched_setaffinity(None, &one).expect("a thread may bind itself");
}

/// Plays the role that [`Helper::start`] asked for; no test of its own.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Err(_) => (),
        Ok("writer") => super::crash::writer(),
        Ok("recorder") => super::crash::recorder(),
        Ok("dumper") => super::dump::dumper(),
        Ok("disk") => super::disk::fill(),
        Ok("crowd") => super::threads::crowd(),
        Ok(role) => panic!("there is no role {role:?}"),
    }
}
