//! Other processes for tests: this very program, which runs one of these roles instead of the tests.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable that names the role.
const ROLE: &str = "REFIT_TEST_ROLE";

/// A process that plays a role, and is killed at the end.
pub(crate) struct Helper {
    pub(crate) child: Child,
    /// Kept open: [`pause`] lasts as long.
    _to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts it; `variables` are added to its environment.
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

    /// The next thing that it says; what the test harness says is left out.
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

    /// Kills it with `SIGKILL`; it stays a zombie until the value is dropped.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says something to who started this process.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("SAYS {what}");
    std::io::stdout().flush().expect("somebody listens");
}

/// Waits for the end of who started this process, or to be killed.
pub(crate) fn pause() {
    std::io::stdin().read_line(&mut String::new()).expect("somebody speaks");
}

/// Waits until something is so; a minute is longer than any machine needs.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::yield_now();
    }
}

/// Binds this thread, and the processes that it starts, to the processor that it is on.
pub(crate) fn bind_here() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(refit_sys::processor::current());
    rustix::thread::sched_setaffinity(None, &one).expect("a thread may bind itself");
}

/// Not a test of its own: the role that [`Helper::start`] asked for.
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
