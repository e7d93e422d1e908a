//! Several instances of this host, and the totals of programs' moves between them.

use std::process::{Command, Stdio};

use refit_instance::Client;
use serde_json::Value;
use tempfile::TempDir;

use crate::workload;

/// Several instances, which end on drop.
pub(crate) struct Instances {
    /// The directory of their sockets.
    directory: TempDir,
}

impl Instances {
    /// Boots two instances with a processor each.
    pub(crate) fn boot() -> Result<Self, String> {
        Self::boot_with(&["--instances", "2"])
    }

    /// Boots instances, whose number and places are given by the arguments of `refit boot`.
    pub(crate) fn boot_with(arguments: &[&str]) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
        let instances = Self { directory };
        instances.refit(&[&["boot"], arguments].concat()).map(|_| instances)
    }

    /// Returns the client for requesting moves of programs that begin at an instance.
    pub(crate) fn client(&self, number: u16) -> Result<Client, String> {
        let entries = std::fs::read_dir(self.directory.path()).map_err(|e| e.to_string())?;
        let paths = entries.flatten().map(|entry| entry.path());
        for path in paths.filter(|path| path.extension().is_some_and(|is| is == "sock")) {
            let client = Client::new(&path).map_err(|e| e.to_string())?;
            if matches!(client.kernel(), Ok(Some(kernel)) if kernel.number == number) {
                return Ok(client);
            }
        }
        Err(format!("there is no instance {number}"))
    }

    /// Returns the command that runs its arguments at the first of them.
    pub(crate) fn under(&self) -> Vec<String> {
        let directory = format!("REFIT_RUNTIME_DIR={}", self.directory.path().display());
        let run = ["run", "--on", "0", "--movable", "--"].map(str::to_owned);
        ["env".to_owned(), directory, workload::refit()].into_iter().chain(run).collect()
    }

    /// Returns the command that runs its arguments there, with threads at both in turn.
    pub(crate) fn run(&self) -> Command {
        let mut command = self.command();
        command.args(["run", "--on", "0", "--movable", "--spread", "--"]);
        command
    }

    /// Returns the totals of the moves of a program that has just ended; `None` if there were none.
    pub(crate) fn moves(&self, process: u32) -> Result<Option<MoveTotals>, String> {
        let said = match self.refit(&["--json", "show", &process.to_string()]) {
            Err(why) if why.contains("no such process") => return Ok(None),
            said => said?,
        };
        let said: Value = serde_json::from_str(&said).map_err(|e| format!("{e}: {said}"))?;
        Ok(Some(MoveTotals::read(&said["moves"])).filter(|moves| moves.out.count > 0))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(workload::refit());
        command.env("REFIT_RUNTIME_DIR", self.directory.path());
        command
    }

    /// Runs `refit` to its end; returns its output.
    fn refit(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command();
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|e| format!("{}: {e}", workload::refit()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

impl Drop for Instances {
    fn drop(&mut self) {
        // Instances that cannot be ended are left for the user, who sees this message.
        if let Err(why) = self.refit(&["shutdown", "--kill"]) {
            eprintln!("bench: the instances: {why}");
        }
    }
}

/// The number of times that an operation was done, and its nanoseconds: sum, minimum, maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) total: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Times {
    fn read(value: &Value) -> Self {
        let number = |name: &str| value[name].as_u64().unwrap_or(0);
        Self {
            count: number("count"),
            total: number("total_ns"),
            least: number("least_ns"),
            most: number("most_ns"),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.least = match (self.count, other.count) {
            (0, _) => other.least,
            (_, 0) => self.least,
            _ => self.least.min(other.least),
        };
        self.most = self.most.max(other.most);
        self.count += other.count;
        self.total += other.total;
    }

    /// Returns the mean duration, in microseconds.
    pub(crate) fn mean(&self) -> f64 {
        self.total as f64 / self.count as f64 / 1e3
    }
}

/// The totals of moves, of one run or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MoveTotals {
    pub(crate) runs: u64,
    /// Threads that left.
    pub(crate) out: Times,
    /// Threads that came back.
    pub(crate) back: Times,
    /// Mapping retrievals, elsewhere.
    pub(crate) faults: Times,
    /// The part of those for questions and answers.
    pub(crate) asks: Times,
    /// The part of those in the coordinator's queue.
    pub(crate) questions: Times,
    /// The part of those for finding the answer.
    pub(crate) answers: Times,
    /// All waits in that queue.
    pub(crate) waits: Times,
    /// Changes of the memory that were sent to the other instance.
    pub(crate) forgets: Times,
    /// System calls that shadows made.
    pub(crate) calls: Times,
    /// Pages that came because a thread elsewhere needed them, where pages move.
    pub(crate) pages: Times,
    /// The part of those for answering the questions for them.
    pub(crate) fetches: Times,
    /// The waits of these questions for that.
    pub(crate) page_waits: Times,
    /// Pages that were needed at home.
    pub(crate) home: Times,
    /// The number of pages that were sent with others.
    pub(crate) ahead: u64,
    /// The number of those that were needed next.
    pub(crate) ahead_used: u64,
}

impl MoveTotals {
    fn read(value: &Value) -> Self {
        let of = |name: &str| Times::read(&value[name]);
        let mut moves = Self {
            runs: 1,
            out: of("out"),
            back: of("back"),
            questions: of("questions"),
            answers: of("answers"),
            waits: of("waits"),
            forgets: of("forgets"),
            fetches: Times::read(&value["pages"]["fetches"]),
            page_waits: Times::read(&value["pages"]["waits"]),
            home: Times::read(&value["pages"]["home"]),
            ahead: value["pages"]["ahead"].as_u64().unwrap_or(0),
            ahead_used: value["pages"]["ahead_used"].as_u64().unwrap_or(0),
            ..Self::default()
        };
        for host in value["destinations"].as_array().into_iter().flatten() {
            moves.faults.add(&Times::read(&host["faults"]));
            moves.asks.add(&Times::read(&host["asks"]));
            moves.pages.add(&Times::read(&host["pages"]));
            for call in host["calls"].as_array().into_iter().flatten() {
                moves.calls.add(&Times::read(call));
            }
        }
        moves
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.out.add(&other.out);
        self.back.add(&other.back);
        self.faults.add(&other.faults);
        self.asks.add(&other.asks);
        self.questions.add(&other.questions);
        self.answers.add(&other.answers);
        self.waits.add(&other.waits);
        self.forgets.add(&other.forgets);
        self.calls.add(&other.calls);
        self.pages.add(&other.pages);
        self.fetches.add(&other.fetches);
        self.page_waits.add(&other.page_waits);
        self.home.add(&other.home);
        self.ahead += other.ahead;
        self.ahead_used += other.ahead_used;
    }

    /// Returns the time in transit of one retrieval's question and answer, in microseconds.
    pub(crate) fn under_way(&self) -> f64 {
        let home = self.questions.total + self.answers.total;
        self.asks.total.saturating_sub(home) as f64 / self.faults.count as f64 / 1e3
    }

    /// Returns the time in transit of one page that moved, in microseconds.
    pub(crate) fn pages_under_way(&self) -> f64 {
        let home = self.page_waits.total + self.fetches.total;
        self.pages.total.saturating_sub(home) as f64 / self.pages.count as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_read_and_added() {
        let times = |count: u64, total: u64| {
            let each = total / count.max(1);
            serde_json::json!({"count": count, "total_ns": total, "least_ns": each, "most_ns": each})
        };
        let host = serde_json::json!({
            "faults": times(2, 100_000), "asks": times(2, 80_000), "calls": [times(1, 5), times(3, 9)],
            "pages": times(2, 60_000)
        });
        let pages = serde_json::json!({"fetches": times(2, 15_000), "waits": times(2, 5_000)});
        let said = serde_json::json!({
            "out": times(1, 700), "questions": times(2, 10_000), "answers": times(2, 30_000), "destinations": [host], "pages": pages
        });
        let mut moves = MoveTotals::read(&said);
        moves.add(&MoveTotals::read(&said));
        assert_eq!((moves.runs, moves.out.count, moves.calls.count), (2, 2, 8));
        assert_eq!((moves.calls.least, moves.calls.most), (3, 5));
        assert!((moves.under_way() - 20.0).abs() < 1e-9);
        assert!((moves.pages_under_way() - 20.0).abs() < 1e-9);
        assert!((moves.faults.mean() - 50.0).abs() < 1e-9);
    }
}
