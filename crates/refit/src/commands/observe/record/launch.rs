//! Starting the command that is recorded.

use std::path::Path;
use std::process::{Child, Command};

use refit_instruments::session::VARIABLE;

use crate::failure::Failure;

/// A command to start; with the path of a session it finds that.
pub(super) fn command(command: &[String], session: Option<&Path>) -> Command {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]).env_remove(VARIABLE);
    if let Some(session) = session {
        started.env(VARIABLE, session);
    }
    started
}

/// Starts a command.
pub(super) fn start(
    words: &[String],
    session: Option<&Path>,
    quiet: bool,
) -> Result<Child, Failure> {
    let mut started = command(words, session);
    if quiet {
        started.stdout(std::process::Stdio::null());
    }
    started.spawn().map_err(|e| {
        Failure::new(format!("run {}", words[0]), e.to_string(), "name a command that exists")
    })
}
