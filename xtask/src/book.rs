//! `cargo xtask book`: builds the documents as one book, in `target/book/html`.
//!
//! mdBook takes its chapters from one folder. The documents are at the root of the repository and
//! in `docs/`, and link to each other from there. They are therefore copied to `target/book/src` at
//! the same relative paths, and the links of the table of contents, which mdBook expects at the
//! top, are rewritten. Then `ci/book.sh` installs mdBook, if it is missing, and runs it as
//! `book.toml` specifies.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::links;
use crate::repository::{MAN, tracked_files};

/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";
/// The folder of the chapters according to `book.toml`.
const SOURCE: &str = "target/book/src";
/// Folders whose files are chapters, or are shown in one.
const FOLDERS: [&str; 2] = ["docs/", "bench/plots/"];
/// Chapters outside of [`FOLDERS`] and not at the root.
const OTHERS: [&str; 1] = ["bench/RESULTS.md"];

/// Builds the book. Returns whether that succeeded; prints failures on standard error.
pub(crate) fn build() -> bool {
    let Some(files) = tracked_files() else {
        eprintln!("book: git does not list the files of the repository");
        return false;
    };
    let broken = links::complaints(&files);
    broken.iter().for_each(|complaint| eprintln!("book: {complaint}"));
    // Deleted documents must not stay in the book.
    let _ = fs::remove_dir_all(SOURCE);
    for file in files.iter().filter(|file| is_of_book(file)) {
        if let Err(error) = copy(file) {
            eprintln!("book: {file} cannot be copied to {SOURCE}: {error}");
            return false;
        }
    }
    let built = Command::new("ci/book.sh").status();
    broken.is_empty() && built.is_ok_and(|status| status.success())
}

/// Returns complaints about documents in `docs/` that the table of contents does not name: mdBook
/// leaves them out.
pub(crate) fn complaints(files: &[String]) -> Vec<String> {
    fs::read_to_string(SUMMARY).map_or_else(|_| Vec::new(), |summary| left_out(files, &summary))
}

fn left_out(files: &[String], summary: &str) -> Vec<String> {
    let chapters = from_root(summary);
    let pages = files.iter().filter(|file| file.starts_with("docs/") && file.ends_with(".md"));
    let missing =
        pages.filter(|file| *file != SUMMARY && !chapters.contains(&format!("]({file})")));
    missing.map(|file| format!("{file}: {SUMMARY} does not name it")).collect()
}

fn is_of_book(file: &str) -> bool {
    let at_root = !file.contains('/') && file.ends_with(".md");
    let in_folder = FOLDERS.iter().any(|folder| file.starts_with(folder));
    at_root || OTHERS.contains(&file) || in_folder && !file.starts_with(MAN)
}

fn copy(file: &str) -> std::io::Result<()> {
    if file == SUMMARY {
        fs::create_dir_all(SOURCE)?;
        let text = fs::read_to_string(file)?;
        return fs::write(Path::new(SOURCE).join("SUMMARY.md"), from_root(&text));
    }
    let to = Path::new(SOURCE).join(file);
    fs::create_dir_all(to.parent().unwrap_or(&to))?;
    // A document that was deleted from the working tree is still listed.
    if Path::new(file).exists() { fs::copy(file, to).map(drop) } else { Ok(()) }
}

/// Returns the table of contents with its links as seen from the root of the repository.
fn from_root(summary: &str) -> String {
    let mut parts = summary.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_once(')').unwrap_or((part, ""));
        let target = links::resolve(SUMMARY, target).unwrap_or_else(|| target.to_owned());
        text += &format!("]({target}){rest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_contents_is_rewritten_for_the_root() {
        let summary = "# Summary\n\n[What](../README.md)\n\n- [Files](guide/files.md)\n";
        let expected = "# Summary\n\n[What](README.md)\n\n- [Files](docs/guide/files.md)\n";
        assert_eq!(from_root(summary), expected);
    }

    #[test]
    fn a_page_that_the_table_of_contents_does_not_name_is_reported() {
        let files = ["docs/SUMMARY.md", "docs/a.md", "docs/b/c.md", "docs/d.svg", "e.md"]
            .map(str::to_owned);
        let found = left_out(&files, "- [A](a.md)\n");
        assert_eq!(found, ["docs/b/c.md: docs/SUMMARY.md does not name it"]);
    }

    #[test]
    fn chapters_are_what_people_read() {
        assert!(
            is_of_book("README.md")
                && is_of_book("docs/tour.svg")
                && is_of_book("bench/RESULTS.md")
        );
        assert!(
            !is_of_book("deny.toml")
                && !is_of_book("bench/run")
                && !is_of_book("crates/x/README.md")
        );
    }
}
