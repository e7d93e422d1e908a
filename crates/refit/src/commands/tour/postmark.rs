//! Debian's `postmark`: many small files created, read, appended to and deleted, as a mail server
//! would.
//!
//! With the same seed it does the same operations every time, so its counts must be the same every
//! time.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// The number of files that it works on at a time.
const FILES: u64 = 500;
/// The number of transactions of a trial run, which suffices to measure the speed of this machine.
const TRIAL: u64 = 1000;
/// The minimum number of transactions, on however slow a machine.
const LEAST: u64 = 1000;

/// The program.
pub(super) struct Postmark {
    program: &'static str,
}

/// A run of the program.
pub(super) struct Running {
    pid: Pid,
    ended: Receiver<std::io::Result<(std::process::Output, Duration)>>,
    transactions: u64,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// The number of requested transactions.
    pub(super) transactions: u64,
    /// The total time; its own clock has a resolution of one second.
    pub(super) wall: Duration,
    /// Its counts, without the rates.
    pub(super) counts: Vec<String>,
    /// Its error message.
    pub(super) complaint: Option<String>,
}

impl Outcome {
    pub(super) fn per_second(&self) -> u64 {
        let micros = u64::try_from(self.wall.as_micros()).unwrap_or(u64::MAX).max(1);
        self.transactions.saturating_mul(1_000_000) / micros
    }
}

impl Postmark {
    /// Looks for the program.
    pub(super) fn find() -> Result<Self, Failure> {
        let program = "postmark";
        let path = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&path).any(|dir| dir.join(program).is_file()) {
            return Ok(Postmark { program });
        }
        Err(Failure::new("tour", "postmark is not installed", "apt-get install postmark"))
    }

    /// Returns the number of transactions that fill the time, from a trial.
    pub(super) fn fitting(
        &self,
        directory: &Path,
        time: Duration,
        interrupted: &AtomicBool,
    ) -> Result<u64, Failure> {
        let outcome = self.start(directory, TRIAL)?.finish(interrupted)?;
        if let Some(complaint) = outcome.complaint {
            return Err(Failure::new("run postmark", complaint, "check whether refit still runs"));
        }
        let fitting =
            u64::try_from(u128::from(TRIAL) * time.as_micros() / outcome.wall.as_micros().max(1));
        Ok(fitting.unwrap_or(u64::MAX).clamp(LEAST, 10_000_000))
    }

    /// Begins a run.
    pub(super) fn start(&self, directory: &Path, transactions: u64) -> Result<Running, Failure> {
        let cannot =
            |e: std::io::Error| Failure::new("run postmark", e.to_string(), "see `refit doctor`");
        let mut child = Command::new(self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .spawn()
            .map_err(cannot)?;
        let script = format!(
            "set location {}\nset number {FILES}\nset transactions {transactions}\nrun\nquit\n",
            directory.display()
        );
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes()).map_err(cannot)?;
        }
        Ok(Running::watch(child, transactions))
    }
}

impl Running {
    fn watch(child: Child, transactions: u64) -> Self {
        let pid = Pid::from_child(&child);
        let (sender, ended) = mpsc::channel();
        let began = Instant::now();
        thread::spawn(move || {
            let output = child.wait_with_output();
            sender.send(output.map(|output| (output, began.elapsed())))
        });
        Running { pid, ended, transactions }
    }

    /// Waits up to `timeout` for its end.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<Option<Outcome>, Failure> {
        match self.ended.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(Ok((output, wall))) => {
                let said = String::from_utf8_lossy(&output.stdout);
                let complained = String::from_utf8_lossy(&output.stderr);
                let counts = counts(&said);
                let complaint = complaint(&said, &complained, output.status.success(), &counts);
                Ok(Some(Outcome { transactions: self.transactions, wall, counts, complaint }))
            }
            Ok(Err(e)) => Err(Failure::new("wait for postmark", e.to_string(), "")),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Failure::new("wait for postmark", "it was lost", ""))
            }
        }
    }

    /// Waits for its end, or for Ctrl-C.
    pub(super) fn finish(mut self, interrupted: &AtomicBool) -> Result<Outcome, Failure> {
        loop {
            if interrupted.load(Ordering::Relaxed) {
                self.kill();
                return Err(Failure::new("tour", "interrupted", "nothing is left behind"));
            }
            if let Some(outcome) = self.wait(Duration::from_millis(100))? {
                return Ok(outcome);
            }
        }
    }

    /// Kills the run.
    pub(super) fn kill(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.ended.recv();
    }
}

/// Returns the lines under `Files:` and `Data:`, without the values that depend on the clock.
fn counts(said: &str) -> Vec<String> {
    let figures = said.lines().skip_while(|line| !line.starts_with("Files:"));
    figures
        .filter(|line| line.starts_with('\t'))
        .map(|line| line.split('(').next().unwrap_or_default().trim().to_owned())
        .collect()
}

fn complaint(said: &str, complained: &str, success: bool, counts: &[String]) -> Option<String> {
    let error = said.lines().chain(complained.lines()).find(|line| line.contains("Error:"));
    match error {
        Some(line) => Some(line.trim_start_matches("pm>").trim().to_owned()),
        None if !success => Some("it failed".to_owned()),
        None if counts.is_empty() => Some("it counted nothing".to_owned()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "PostMark v1.51 : 8/14/01\npm>Creating files...Done\nTime:\n\t1 seconds total\n\
        Files:\n\t1556 created (1556 per second)\n\t\tCreation alone: 500 files (500 per second)\n\
        \t978 read (978 per second)\nData:\n\t5.96 megabytes read (5.96 megabytes per second)\npm>";

    #[test]
    fn counts_leave_the_clock_out() {
        assert_eq!(
            counts(SAID),
            ["1556 created", "Creation alone: 500 files", "978 read", "5.96 megabytes read"]
        );
    }

    #[test]
    fn complaints_are_heard() {
        let c = counts(SAID);
        assert_eq!(complaint(SAID, "", true, &c), None);
        assert_eq!(complaint(SAID, "", false, &c).as_deref(), Some("it failed"));
        assert_eq!(complaint("pm>", "", true, &[]).as_deref(), Some("it counted nothing"));
        let error = "pm>Error: cannot open '/x/1' for writing";
        assert!(
            complaint(error, "", true, &c).is_some_and(|c| c.starts_with("Error: cannot open"))
        );
    }

    #[test]
    fn throughput_is_by_the_wall_clock() {
        let wall = Duration::from_millis(500);
        let outcome = Outcome { transactions: 1000, wall, counts: vec![], complaint: None };
        assert_eq!(outcome.per_second(), 2000);
    }
}
