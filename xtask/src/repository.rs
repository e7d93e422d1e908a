//! The files of the repository, and the places in it that more than one chore knows.

use std::process::Command;

/// Generated from the definition of the command line, and checked in so that packagers find it.
pub(crate) const MAN: &str = "docs/man";

/// Files that are, or are about to be, in the repository.
pub(crate) fn tracked_files() -> Option<Vec<String>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
