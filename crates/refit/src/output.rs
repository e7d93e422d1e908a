//! Standard output: lines for people, or one JSON object per line for programs.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use refit_sys::printable;
use serde::Serialize;

use crate::failure::Failure;

/// Where a command prints what it found.
pub(crate) struct Output {
    json: bool,
    to: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Output { json, to: BufWriter::new(io::stdout()) }
    }

    /// Whether programs read this.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// A line for people. Names in it come from anywhere: what would act on a terminal, or begin
    /// another line, is escaped.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.to, "{}", printable::line(text))?)
    }

    /// A line of the command's own, with the escape sequences that it is painted with.
    pub(crate) fn painted(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.to, "{text}")?)
    }

    /// Bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.to.write_all(bytes)?)
    }

    /// A line for programs.
    pub(crate) fn object<T: Serialize>(&mut self, object: &T) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.to, object).map_err(io::Error::from)?;
        Ok(self.to.write_all(b"\n")?)
    }

    /// Lets everything out that was printed so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.to.flush()?)
    }
}

/// Prints a line on standard error, for people, with control characters escaped. Nothing can be
/// done if the line cannot be written.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable::line(text));
}

/// Whether standard output is a terminal on which more can be done than to print one line after the
/// other.
pub(crate) fn can_draw() -> bool {
    let term = std::env::var_os("TERM").unwrap_or_default();
    io::stdout().is_terminal() && !term.is_empty() && term != "dumb"
}
