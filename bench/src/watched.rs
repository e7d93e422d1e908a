//! Another process of the bench, which tools watch: it answers each line of its input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process; killed on drop.
pub(crate) struct Watched {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Watched {
    /// Starts the bench with an argument that makes it the watched process.
    pub(crate) fn start(argument: &str) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(own);
        command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let stdin = child.stdin.take().ok_or("no input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, stdin, stdout })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its next line.
    pub(crate) fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line).map_err(|e| e.to_string())? {
            0 => Err(match self.child.wait() {
                Ok(status) => format!("the program has ended: {status}"),
                Err(error) => error.to_string(),
            }),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// Returns its answer, a number of nanoseconds.
    pub(crate) fn ask(&mut self, line: &str) -> Result<f64, String> {
        // If it has ended, its answer is missing, too.
        let _ = writeln!(self.stdin, "{line}");
        self.line()?.parse().map_err(|e| format!("a time: {e}"))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It would also end with its input, but perhaps not soon.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
