//! Extracts the paths that a Rust source file contains, which is enough to see which modules of its
//! crate it uses.
//!
//! This is not a parser: it knows the forms that rustfmt leaves. Paths that macros create are not
//! seen.

use std::collections::BTreeSet;

/// The references of a source file to other modules.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Paths that are used, including private imports, each as written.
    pub(crate) paths: Vec<Vec<String>>,
    /// Paths that are re-exported. A path whose name the file uses itself is among `paths`, too.
    pub(crate) exports: Vec<Vec<String>>,
    /// Every word of the file.
    pub(crate) words: BTreeSet<String>,
}

/// Reads the text of a file.
pub(crate) fn read(text: &str) -> Source {
    let mut source = Source::default();
    let code = code(text);
    let words = words(&code);
    // Child modules are recognized by their declarations.
    let children: BTreeSet<&str> = words
        .windows(3)
        .filter(|three| three[0].1 == "mod" && three[2].1 == ";")
        .map(|three| three[1].1)
        .collect();
    let mut own: Vec<&str> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let (inner, word) = words[at];
        let before = |back: usize| at.checked_sub(back).map_or("", |at| words[at].1);
        // `pub(in crate::a)` uses nothing.
        let restricts = before(1) == "in" && before(2) == "(";
        let begins = !restricts && !["::", "."].contains(&before(1));
        if word == "use" && begins {
            let exports = ["pub", ")"].contains(&before(1));
            let mut found = Vec::new();
            at = tree(&words, at + 1, &mut Vec::new(), &mut found);
            let found = found.into_iter().filter_map(|path| outside(path, inner));
            if exports {
                source.exports.extend(found)
            } else {
                source.paths.extend(found)
            }
            continue;
        }
        let follows = words.get(at + 1).is_some_and(|next| next.1 == "::");
        let starts = ["crate", "super", "self"].contains(&word) || children.contains(word);
        if begins && follows && starts {
            let mut found = Vec::new();
            at = tree(&words, at, &mut Vec::new(), &mut found);
            source.paths.extend(found.into_iter().filter_map(|path| outside(path, inner)));
            continue;
        }
        if begins {
            own.push(word);
        }
        at += 1;
    }
    let own: BTreeSet<&str> = own.into_iter().collect();
    let used = source.exports.iter().filter(|path| path.last().is_some_and(|n| own.contains(&**n)));
    source.paths.extend(used.cloned().collect::<Vec<_>>());
    source.words = words.iter().map(|(_, word)| (*word).to_owned()).collect();
    source
}

/// Returns the text without the modules of its tests.
fn code(text: &str) -> String {
    let bare = bare(text);
    let lines: Vec<&str> = bare.lines().collect();
    let mut kept = String::with_capacity(bare.len());
    let mut at = 0;
    while at < lines.len() {
        let follows = lines.get(at + 1).is_some_and(|l| l.starts_with("mod ") && l.ends_with('{'));
        if lines[at].starts_with("#[cfg(") && lines[at].contains("test") && follows {
            at += lines[at..].iter().position(|line| *line == "}").unwrap_or(lines.len());
        } else {
            kept.push_str(lines[at]);
            kept.push('\n');
        }
        at += 1;
    }
    kept
}

/// Returns the text without comments and with empty string and character literals, since those may
/// contain any character.
fn bare(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|r| r.trim_start_matches('#'));
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(inner) = raw.filter(|r| r.starts_with('"') && !kept.ends_with(is_word)) {
            let hashes = rest.len() - inner.len() - 1;
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = hashes + 2;
            rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
        } else if first == '"' {
            quoted(rest, '"')
        } else if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') && first == '\'' {
            quoted(rest, '\'')
        } else {
            kept.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        rest = &rest[skip..];
    }
    kept
}

/// Returns the length of a literal with its quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns words and punctuation in order, each with the number of inner modules (`mod name {`)
/// around it.
fn words(code: &str) -> Vec<(usize, &str)> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    // The brace depth at which each inner module begins.
    let (mut inner, mut depth) = (Vec::new(), 0_usize);
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        let word = &rest[..length];
        match word {
            "{" => {
                if let [.., (_, "mod"), _] = found[..] {
                    inner.push(depth);
                }
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                if inner.last() == Some(&depth) {
                    inner.pop();
                }
            }
            _ => {}
        }
        found.push((inner.len(), word));
        rest = rest[length..].trim_start();
    }
    found
}

/// Reads a path with its groups (`a::{b, c::D}`) from a word on, and adds each path that it stands
/// for to `found`. Returns the index of the next word.
fn tree(
    words: &[(usize, &str)],
    mut at: usize,
    before: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> usize {
    let length = before.len();
    loop {
        match words.get(at).map(|word| word.1) {
            Some("{") => {
                at += 1;
                while let Some((_, word)) = words.get(at).filter(|word| word.1 != "}") {
                    // A character that belongs to no path must not stop the loop from advancing.
                    at = if *word == "," {
                        at + 1
                    } else {
                        tree(words, at, before, found).max(at + 1)
                    };
                }
                at += 1;
                break;
            }
            Some("self") if before.len() > length || length > 0 => {
                found.push(before.clone());
                at += 1;
                break;
            }
            Some(word)
                if word == "*" || word.starts_with(|c: char| c.is_alphabetic() || c == '_') =>
            {
                before.push(word.to_owned());
                at += 1;
                if words.get(at).is_none_or(|next| next.1 != "::") {
                    found.push(before.clone());
                    break;
                }
                at += 1;
            }
            _ => {
                found.push(before.clone());
                break;
            }
        }
    }
    if words.get(at).is_some_and(|word| word.1 == "as") {
        at += 2;
    }
    before.truncate(length);
    at
}

/// Returns a path that is written inside `inner` modules of a file as it would be written outside
/// of them; `None` if it does not leave them.
fn outside(mut path: Vec<String>, inner: usize) -> Option<Vec<String>> {
    for _ in 0..inner {
        match path.first().map(String::as_str) {
            Some("super") => drop(path.remove(0)),
            Some("crate") => break,
            _ => return None,
        }
    }
    (!path.is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        read(text).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn groups_are_taken_apart() {
        let found = paths("use crate::a::{self, b::{C, D as E}, f};\nuse super::*;\n");
        assert_eq!(
            found,
            ["crate::a", "crate::a::b::C", "crate::a::b::D", "crate::a::f", "super::*"]
        );
    }

    #[test]
    fn paths_in_code_are_seen() {
        let found = paths("mod child;\nfn f() -> crate::a::B { child::g(self.x, other::h) }\n");
        assert_eq!(found, ["crate::a::B", "child::g"]);
    }

    #[test]
    fn inner_modules_are_of_their_file() {
        let found =
            paths("mod inner {\n    use super::A;\n    use super::super::B;\n}\nuse super::C;\n");
        assert_eq!(found, ["A", "super::B", "super::C"]);
    }

    #[test]
    fn literals_and_tests_are_left_out() {
        let text = r##"fn f() { g('{', "crate::a \"{", r#"{"#, 'a', b'\'') } // crate::b
#[cfg(test)]
mod tests {
    use super::super::c;
}
fn h<'a>() { crate::d() }
"##;
        assert_eq!(paths(text), ["crate::d"]);
    }

    #[test]
    fn exports_count_where_the_file_uses_them() {
        let source = read("pub use a::{A, B};\nfn f(_: A) {}\n");
        assert_eq!(source.exports.len(), 2);
        assert_eq!(source.paths, [["a", "A"]]);
    }
}
