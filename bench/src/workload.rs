//! Programs that measure themselves: this one, started once more, alone or under another command.
//! They receive commands line by line, and answer each line with numbers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running program, which ends on drop.
pub(crate) struct Workload {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts this program with `arguments`, by the command `under`, if there is one.
    pub(crate) fn start(under: &[String], arguments: &[String]) -> Result<Self, String> {
        let own = own()?;
        let mut command = match under.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(own.get_program());
                command
            }
            None => own,
        };
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = command.spawn().map_err(|e| format!("{under:?} {arguments:?}: {e}"));
        let mut child = started?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = BufReader::new(stdout.ok_or("no output")?);
        Ok(Self { child, stdin: stdin.ok_or("no input")?, stdout })
    }

    /// Returns its process number, since `refit run` becomes the program.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command; returns the `N` numbers of the answer.
    pub(crate) fn ask<const N: usize>(&mut self, line: &str) -> Result<[f64; N], String> {
        let numbers = self.ask_all(line)?;
        numbers.try_into().map_err(|numbers| format!("{line:?} was answered with {numbers:?}"))
    }

    /// Sends a command; returns the numbers of the answer, however many there are.
    pub(crate) fn ask_all(&mut self, line: &str) -> Result<Vec<f64>, String> {
        writeln!(self.stdin, "{line}").map_err(|e| format!("{line:?}: {e}"))?;
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).map_err(|e| format!("{line:?}: {e}"))?;
        let numbers: Option<Vec<f64>> =
            answer.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.ok_or_else(|| format!("{line:?} was answered with {answer:?}"))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Any other process, which ends on drop.
pub(crate) struct Ended(Child);

impl Ended {
    /// Starts the process.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        command.spawn().map(Self).map_err(|e| format!("{command:?}: {e}"))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers each line of the bench until there are no more. An error is an answer, too, that is not
/// a number.
pub(crate) fn serve(mut answer: impl FnMut(&[&str]) -> Result<Vec<f64>, String>) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match answer(&words) {
            Ok(numbers) => {
                let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
                println!("{}", words.join(" "));
            }
            Err(why) => println!("{why}"),
        }
    }
}

/// Returns the command that runs this program.
pub(crate) fn own() -> Result<Command, String> {
    std::env::current_exe().map(Command::new).map_err(|e| e.to_string())
}

/// Returns the command `refit run` with a limit.
pub(crate) fn limited(mebibytes: usize) -> Vec<String> {
    let [run, memory, end] = ["run", "--memory", "--"].map(str::to_owned);
    vec![refit(), run, memory, format!("{mebibytes}M"), end]
}

/// Returns the command `refit`.
pub(crate) fn refit() -> String {
    std::env::var("REFIT").unwrap_or_else(|_| "refit".to_owned())
}
