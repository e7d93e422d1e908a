//! Checks rules of the repository that no other tool checks:
//!
//! - every module has a doc comment that says what it is about;
//! - files and functions stay short;
//! - no file names a directory of the machine on which it was written;
//! - file names are plain;
//! - documents name source files that exist, and link to existing targets;
//! - no word that was given up returns ([`crate::words`]);
//! - a crate depends only on crates of floors below its own ([`crate::floors`]);
//! - no constant and no public type is defined twice ([`crate::duplicates`]);
//! - the modules of a crate do not use each other in circles;
//! - comments follow the style of [`crate::prose`].

use std::fs;

use crate::repository::tracked_files;
use crate::{circles, duplicates, floors, functions, prose, words};

/// The maximum number of lines; a longer file contains more than one idea.
const LINES: usize = 500;

/// Prints all violations. Returns whether there are none.
pub(crate) fn check() -> bool {
    let Some(files) = tracked_files() else {
        eprintln!("tidy: git does not list the files of the repository");
        return false;
    };
    let formerly = fs::read_to_string(words::GLOSSARY);
    let formerly = formerly.map(|text| words::former_names(&text)).unwrap_or_default();
    let mut complaints = Vec::new();
    for file in &files {
        if !is_plain(file) {
            complaints.push(format!(
                "{file}: its name has characters that a shell or a URL would have to quote"
            ));
        }
        // Deleted from the working tree, or not text: there is nothing to check.
        let Ok(text) = fs::read_to_string(file) else { continue };
        let mut found = look_at(file, &text);
        if file.ends_with(".md") && file != HISTORY {
            found.extend(missing_sources(&text, &files));
        }
        if file.ends_with(".rs") {
            found.extend(words::complaints(file, &text, &formerly));
            found.extend(functions::complaints(&text));
        }
        complaints.extend(found.into_iter().map(|what| format!("{file}: {what}")));
    }
    complaints.extend(circles::complaints(&files, &circles::EXEMPT, |file| {
        fs::read_to_string(file).ok()
    }));
    complaints
        .extend(prose::complaints(&files, prose::EXEMPT, |file| fs::read_to_string(file).ok()));
    let text_of = |file: &str| fs::read_to_string(file).ok();
    complaints.extend(floors::complaints(&files, text_of));
    complaints.extend(duplicates::complaints(&files, &duplicates::EXEMPT, text_of));
    complaints.extend(crate::links::complaints(&files));
    complaints.extend(crate::book::complaints(&files));
    for complaint in &complaints {
        eprintln!("tidy: {complaint}");
    }
    complaints.is_empty()
}

/// The file that may contain names that were once valid.
const HISTORY: &str = "CHANGELOG.md";

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

/// Returns whether a path consists of letters, digits and `._-/@+` only.
fn is_plain(file: &str) -> bool {
    file.chars().all(|c| c.is_ascii_alphanumeric() || "._-/@+".contains(c))
}

/// Returns complaints about Rust files that a document names and that do not exist. A path may lack
/// directories at its front.
fn missing_sources(text: &str, files: &[String]) -> Vec<String> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let mut missing = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for code in line.split('`').skip(1).step_by(2).filter(|code| code.ends_with(".rs")) {
            let there = |file: &String| {
                file.strip_suffix(code)
                    .is_some_and(|front| front.is_empty() || front.ends_with('/'))
            };
            if code.chars().all(is_path) && !files.iter().any(there) {
                missing.push(format!("line {}: there is no file {code}", i + 1));
            }
        }
    }
    missing
}

/// Returns a path in the line that exists on one machine only. The patterns are written in two
/// halves; otherwise this file would contain such paths.
fn machine_path(line: &str) -> Option<&'static str> {
    const PLACES: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")];
    for (i, (a, b)) in PLACES.iter().enumerate() {
        let place = [*a, *b].concat();
        for (at, _) in line.match_indices(&place) {
            // Only at the beginning of a path: `some/work/` is an ordinary subdirectory.
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
    fn names_of_files_are_plain() {
        assert!(is_plain("crates/a-b/src/c_d.rs") && is_plain("@x/y+z.txt"));
        assert!(!is_plain("a b.rs") && !is_plain("%(a)|") && !is_plain("ä"));
    }

    #[test]
    fn sources_that_a_document_names_are_there() {
        let files = vec!["crates/x/src/a/b.rs".to_owned()];
        assert!(missing_sources("see `a/b.rs`, `b.rs`, `{b,c}.rs`", &files).is_empty());
        assert_eq!(missing_sources("see `c/b.rs`", &files).len(), 1);
        assert_eq!(missing_sources("see `ab.rs`", &files).len(), 1);
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
