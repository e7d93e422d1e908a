//! Finds definitions that exist twice: constants of the same name and value, and public types of
//! the same name.
//!
//! A constant counts if it belongs to a module, its name has at least [`LONG`] characters, and its
//! value is no small number: two modules may both try something three times. A type counts if its
//! name has several words: one of a single word, such as `Kind`, is read with the path of its
//! module. Tests, benches and examples do not count, and neither do the wire forms of
//! `refit-instance`, which have the names of what they carry.

use std::collections::BTreeMap;

/// The length of a constant's name from which on it says what it is.
const LONG: usize = 4;
/// The largest number that is small.
const SMALL: u64 = 1024;

/// Constants that may exist twice, with the reason.
pub(crate) const EXEMPT: [(&str, &str); 4] = [
    ("STEPS", "limits of two searches, each chosen for itself"),
    ("POLL_INTERVAL", "of different things, which happen to be equally fast"),
    ("SWEEP", "a name of the command line, and the policy that has it"),
    ("CALL_POLL", "of the two ends of a call, each of which polls for itself"),
];

/// A definition by its name, and by its value if it is a constant.
type Key = (String, Option<String>);

/// Returns a complaint for each definition that exists twice, and for each of `exempt` that does
/// not. `text_of` reads a file.
pub(crate) fn complaints(
    files: &[String],
    exempt: &[(&str, &str)],
    text_of: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut places: BTreeMap<Key, Vec<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_part_of_a_crate(file)) {
        let text = text_of(file).unwrap_or_default();
        let definitions = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        for line in definitions.lines() {
            let key = constant(line).or_else(|| {
                public_type(line).filter(|_| !file.contains("/wire")).map(|name| (name, None))
            });
            if let Some(key) = key {
                places.entry(key).or_default().push(file);
            }
        }
    }
    places.retain(|_, files| files.len() > 1);
    let is_twice = |wanted: &str| places.keys().any(|(name, _)| name == wanted);
    let idle = exempt.iter().filter(|(name, _)| !is_twice(name));
    let idle = idle.map(|(name, _)| format!("{name}: take it off the list of exempt definitions"));
    let is_exempt = |wanted: &str| exempt.iter().any(|(name, _)| *name == wanted);
    let twice = places.iter().filter(|((name, _), _)| !is_exempt(name));
    let complaint = |((name, _), files): (&Key, &Vec<&str>)| {
        format!("{}: `{name}` is defined in {} as well", files[0], files[1..].join(" and "))
    };
    twice.map(complaint).chain(idle).collect()
}

fn is_part_of_a_crate(file: &str) -> bool {
    let part = file.strip_prefix("crates/").and_then(|file| file.split_once("/src/"));
    part.is_some_and(|(_, path)| path.ends_with(".rs") && !path.ends_with("tests.rs"))
}

/// Returns the name and the value of a constant of a module that a line defines.
fn constant(line: &str) -> Option<Key> {
    let visible = line.strip_prefix("pub").map_or(line, |rest| {
        rest.split_once(") ").filter(|_| rest.starts_with('(')).map_or(rest, |(_, rest)| rest)
    });
    let (name, rest) = visible.trim_start_matches(' ').strip_prefix("const ")?.split_once(": ")?;
    let value = rest.split_once(" = ")?.1.strip_suffix(';')?;
    let number = value.replace('_', "").parse::<u64>();
    let trivial = value == "true" || value == "false" || number.is_ok_and(|n| n < SMALL);
    let counts = !line.starts_with(' ') && name.len() >= LONG && !trivial;
    counts.then(|| (name.to_owned(), Some(value.to_owned())))
}

/// Returns the name of several words of a public type that a line defines.
fn public_type(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    (name.chars().filter(char::is_ascii_uppercase).count() > 1).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_beside(exempt: &[(&str, &str)], a: &str, b: &str) -> Vec<String> {
        let files = ["crates/a/src/x.rs", "crates/b/src/y.rs"].map(str::to_owned);
        complaints(&files, exempt, |file| {
            Some(if file.contains("/a/") { a.to_owned() } else { b.to_owned() })
        })
    }

    fn found(a: &str, b: &str) -> Vec<String> {
        found_beside(&[], a, b)
    }

    #[test]
    fn constants_of_one_name_and_value_are_found() {
        let size = "pub(crate) const PAGE_SIZE: u64 = 4096;\n";
        let complaint = "crates/a/src/x.rs: `PAGE_SIZE` is defined in crates/b/src/y.rs as well";
        assert_eq!(found(size, "const PAGE_SIZE: usize = 4096;\n"), [complaint]);
        assert_eq!(found(size, "pub const PAGE_SIZE: usize = 4096;\n"), [complaint]);
        assert!(found(size, "const PAGE_SIZE: usize = 8192;\n").is_empty());
    }

    #[test]
    fn an_exception_is_needed() {
        let (exempt, size) = ([("KNOWN", "a reason")], "const KNOWN: u64 = 4096;\n");
        assert!(found_beside(&exempt, size, size).is_empty());
        let idle = "KNOWN: take it off the list of exempt definitions";
        assert_eq!(found_beside(&exempt, size, "const KNOWN: u64 = 8192;\n"), [idle]);
    }

    #[test]
    fn small_numbers_and_what_is_within_functions_and_tests_do_not_count() {
        for twice in [
            "const TRIES: u8 = 3;\n",
            "const BIG: u64 = 4096;\n",
            "fn f() {\n    const LARGE: u64 = 4096;\n}\n",
            "\n#[cfg(test)]\nmod tests {\nconst LARGE: u64 = 4096;\n}\n",
        ] {
            assert!(found(twice, twice).is_empty(), "{twice}");
        }
    }

    #[test]
    fn public_types_of_several_words_have_one_definition() {
        assert_eq!(found("pub struct PageTable {\n", "pub enum PageTable {\n").len(), 1);
        assert!(found("pub struct PageTable {\n", "pub(crate) struct PageTable;\n").is_empty());
        assert!(found("pub struct Kind {\n", "pub struct Kind {\n").is_empty());
    }
}
