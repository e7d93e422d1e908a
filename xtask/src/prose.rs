//! Checks the style of comments, as far as a program can, and that no type is named by a
//! participle.
//!
//! A comment line has at most [`COLUMNS`] characters. A doc comment says what an item is or does:
//! it does not begin with a word that stands in for a noun. A type name is a noun.

use std::collections::BTreeSet;

/// The longest line of a comment, in characters.
const COLUMNS: usize = 100;

/// Words that a doc comment does not begin with.
const STAND_INS: [&str; 9] =
    ["Who", "What", "Whoever", "Whatever", "Whose", "How", "It", "These", "Those"];

/// Type names that say what was done to something, but not what it is.
const PARTICIPLES: [&str; 10] =
    ["Told", "Found", "Held", "Came", "Fell", "Known", "Taken", "Made", "Given", "Planted"];

/// Folders with comments that still violate this. A folder leaves the list with its last one.
pub(crate) const EXEMPT: &[&str] = &[];

/// Returns complaints about the Rust files, each with its path. `text_of` reads a file.
pub(crate) fn complaints(
    files: &[String],
    exempt: &[&str],
    text_of: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut needed = BTreeSet::new();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let Some(text) = text_of(file) else { continue };
        let complaints = look_at(&text);
        match exempt.iter().find(|folder| is_in(file, folder)) {
            Some(folder) if !complaints.is_empty() => drop(needed.insert(*folder)),
            Some(_) => {}
            None => found.extend(complaints.into_iter().map(|what| format!("{file}: {what}"))),
        }
    }
    let idle = exempt.iter().filter(|folder| !needed.contains(*folder));
    found.extend(idle.map(|folder| format!("{folder}: take it off the list of exempt folders")));
    found
}

fn is_in(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns complaints about one file.
fn look_at(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    // Whether the previous line belongs to the same doc comment.
    let mut within = false;
    for (i, line) in text.lines().enumerate() {
        let mut complain = |what: String| complaints.push(format!("line {}: {what}", i + 1));
        let line = line.trim_end();
        let code = line.trim_start();
        if code.starts_with("//") && line.chars().count() > COLUMNS {
            complain(format!("a comment of more than {COLUMNS} columns"));
        }
        let doc = ["///", "//!"].iter().find_map(|mark| code.strip_prefix(mark));
        if let Some(said) = doc.filter(|_| !within) {
            let first = said.split_whitespace().next().unwrap_or_default();
            let first = first.trim_end_matches(|c: char| !c.is_alphanumeric());
            if STAND_INS.contains(&first) {
                complain(format!("a doc comment begins with `{first}`"));
            }
        }
        within = doc.is_some();
        if let Some(name) = type_name(code).filter(|name| PARTICIPLES.contains(name)) {
            complain(format!("`{name}` is no noun"));
        }
    }
    complaints
}

/// Returns the name of the type that a line defines.
fn type_name(code: &str) -> Option<&str> {
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let keywords = ["struct", "enum", "trait", "type"];
    let visible = ["pub", "crate", "super", "in", ""];
    let keyword = words.find(|word| !visible.contains(word))?;
    if keywords.contains(&keyword) { words.next() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_short_and_begin_with_what_the_item_is() {
        assert!(look_at("/// Returns the number.\n/// What else it is.\nfn a() {}\n").is_empty());
        assert_eq!(look_at("/// What it is.\nfn a() {}\n").len(), 1);
        assert_eq!(look_at("//! It.\n").len(), 1);
        let wide = format!("// {}\n", "x".repeat(COLUMNS));
        assert_eq!(look_at(&wide).len(), 1);
        // Characters count, not bytes; and the width of code is left to rustfmt.
        assert!(look_at(&format!("// {}\n", "─".repeat(COLUMNS - 3))).is_empty());
        assert!(look_at(&format!("let a = \"{}\";\n", "x".repeat(COLUMNS))).is_empty());
    }

    #[test]
    fn types_are_nouns() {
        assert_eq!(look_at("pub(crate) struct Told {\n").len(), 1);
        assert_eq!(look_at("type Known = u8;\n").len(), 1);
        assert!(look_at("struct Knowledge;\nfn told() {}\nlet of: Told = 1;\n").is_empty());
    }

    #[test]
    fn a_folder_is_exempt_as_long_as_it_has_to_be() {
        let files = vec!["a/x.rs".to_owned(), "b/y.rs".to_owned()];
        let text = |file: &str| {
            Some(if file.starts_with('a') { "/// It.\n" } else { "/// A noun.\n" }.to_owned())
        };
        assert_eq!(complaints(&files, &[], text).len(), 1);
        assert!(complaints(&files, &["a"], text).is_empty());
        assert_eq!(
            complaints(&files, &["a", "b"], text),
            ["b: take it off the list of exempt folders"]
        );
    }
}
