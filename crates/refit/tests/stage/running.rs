//! Programs that run under an instance.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Stage;

/// Waits for something that has to come.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} has not come");
        // Others work meanwhile; nothing depends on how long this is.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Builds a program of a few lines of C.
pub(crate) fn build(stage: &Stage, name: &str, source: &str) -> String {
    let (from, to) = (stage.path(&format!("{name}.c")), stage.path(name));
    fs::write(&from, source).expect("written");
    let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).args([&to, &from]).status();
    assert!(built.expect("a C compiler").success());
    to.to_str().expect("UTF-8").to_owned()
}

fn runs(process: u64, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|comm| comm.trim() == name)
}

/// A program that runs under an instance by now; killed if a test fails half-way.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Returns when the program, whose name is this, has begun.
    pub(crate) fn start(stage: &Stage, options: &[&str], command: &[&str], name: &str) -> Self {
        let mut refit = stage.refit(&["run"]);
        refit.args(options).arg("--").args(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = refit.spawn();
        let running = Self(child.expect("it starts"));
        until("the program", || runs(running.id(), name));
        running
    }

    pub(crate) fn id(&self) -> u64 {
        u64::from(self.0.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether programs can be limited here; if not, why not.
pub(crate) fn can_limit(stage: &Stage) -> bool {
    let (_, stdout, _) = stage.run(&["--json", "doctor"]);
    let findings = stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object"));
    let finding: Value = findings
        .into_iter()
        .find(|finding: &Value| finding["name"] == "memory limits")
        .expect("it is looked for");
    if finding["ok"] == true {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{finding}");
    println!("skipped: {finding}");
    false
}
