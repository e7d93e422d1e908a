//! Habits that no other tool checks: every module says what it is about, files stay short, and nothing names
//! a directory of the machine it was written on.

use std::fs;
use std::process::Command;

/// Longer files hold more than one idea.
const LINES: usize = 700;

/// Says what is out of order; whether nothing is.
pub(crate) fn check() -> bool {
    let Some(files) = tracked_files() else {
        eprintln!("tidy: git does not list the files of the repository");
        return false;
    };
    let mut complaints = Vec::new();
    for file in &files {
        // Gone from the working tree, or not text: nothing to say about it.
        let Ok(text) = fs::read_to_string(file) else { continue };
        complaints.extend(look_at(file, &text).into_iter().map(|what| format!("{file}: {what}")));
    }
    for complaint in &complaints {
        eprintln!("tidy: {complaint}");
    }
    complaints.is_empty()
}

/// Files that are, or are about to be, in the repository.
fn tracked_files() -> Option<Vec<String>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn look_at(file: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if file.ends_with(".rs") {
        let lines = text.lines().count();
        if lines > LINES {
            complaints.push(format!("{lines} lines; {LINES} are the most"));
        }
        let begins = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if !begins.starts_with("//!") && !begins.starts_with("#!") {
            complaints.push("does not begin by saying what it is about (//!)".to_owned());
        }
    }
    if file.ends_with(".lock") {
        return complaints;
    }
    for (i, line) in text.lines().enumerate() {
        if let Some(path) = machine_path(line) {
            complaints
                .push(format!("line {}: names {path} of the machine it was written on", i + 1));
        }
    }
    complaints
}

/// A path that exists on one machine only. Written in two halves, or this file would name them.
fn machine_path(line: &str) -> Option<&'static str> {
    const PLACES: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")];
    for (i, (a, b)) in PLACES.iter().enumerate() {
        let place = [*a, *b].concat();
        for (at, _) in line.match_indices(&place) {
            // Only where a path begins: `some/work/` is somebody's subdirectory.
            let before = line[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && !"._-/~}$*".contains(c)) {
                return Some(["a working directory", "root's home", "a home directory"][i]);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_says_what_it_is_about() {
        assert!(look_at("a.rs", "//! About.\n").is_empty());
        assert_eq!(look_at("a.rs", "fn main() {}\n").len(), 1);
        assert!(look_at("a.sh", "true\n").is_empty());
    }

    #[test]
    fn files_stay_short() {
        let text = "//! About.\n".repeat(LINES);
        assert!(look_at("a.rs", &text).is_empty());
        assert_eq!(look_at("a.rs", &(text + "//!\n")).len(), 1);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let (root, home) = (["/ro", "ot/"].concat(), ["/ho", "me/"].concat());
        assert!(machine_path(&format!("cd {root}x")).is_some());
        assert!(machine_path(&format!("\"{home}me\"")).is_some());
        assert!(machine_path(&format!("some{home}me")).is_none());
        assert!(machine_path("/usr/share /mnt/data ~/data").is_none());
    }
}
