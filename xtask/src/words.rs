//! Words that were given up and must not return to the code: those of the glossary's "formerly"
//! column that are written as names (`` `Name` ``), and a few more.

/// The glossary, whose last column contains abandoned names.
pub(crate) const GLOSSARY: &str = "GLOSSARY.md";

/// Abandoned words that no row of the glossary has in this form.
const MORE: [&str; 10] = [
    "PATIENCE",
    "berth",
    "custodian",
    "errand",
    "errands",
    "landlord",
    "librarian",
    "mourner",
    "vacancies",
    "warden",
];

/// Abandoned names that are words of ordinary English, too, or of Linux (`sched_yield`, `Tree` of
/// files). They are refused as names of types only.
const ORDINARY: [&str; 14] = [
    "Abroad",
    "Came",
    "Fell",
    "Following",
    "Forget",
    "Grant",
    "Guest",
    "Moves",
    "Rests",
    "Runner",
    "Stands",
    "Tree",
    "Wish",
    "Yield",
];

/// The file that has these words itself.
const OWN: &str = "xtask/src/words.rs";

/// Returns the names in the last column of the glossary's tables that begin with a capital.
pub(crate) fn former_names(glossary: &str) -> Vec<String> {
    let rows = glossary.lines().filter(|line| line.starts_with('|'));
    let last = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    last.flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(str::to_owned)
        .collect()
}

/// Returns complaints about a file of code: abandoned words, and types under abandoned names.
pub(crate) fn complaints(file: &str, text: &str, formerly: &[String]) -> Vec<String> {
    if file == OWN {
        return Vec::new();
    }
    let refused = |word: &str| {
        let former = |name: &String| word == name && !ORDINARY.contains(&name.as_str());
        MORE.contains(&word) || formerly.iter().any(former)
    };
    let mut complaints = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let defined = words.windows(2).find_map(|two| {
            let defines = ["struct", "enum", "trait", "type"].contains(&two[0])
                && formerly.iter().any(|name| name == two[1]);
            (defines && !line.trim_start().starts_with("//")).then_some(two[1])
        });
        if let Some(word) = defined.or_else(|| words.iter().copied().find(|word| refused(word))) {
            complaints.push(format!("line {}: {word} was given up ({GLOSSARY})", i + 1));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn former() -> Vec<String> {
        let rows =
            "|---|---|---|---|\n| a | b | c | `Oldman`, `former` |\n| a | b | c | `Tree` |\n";
        former_names(&format!("| term | is | where | formerly |\n{rows}"))
    }

    #[test]
    fn types_under_abandoned_names_are_found() {
        assert_eq!(former(), ["Oldman", "Tree"]);
        assert_eq!(complaints("a.rs", "pub(crate) struct Tree {", &former()).len(), 1);
        assert!(complaints("a.rs", "struct Trees;\n// struct Tree", &former()).is_empty());
    }

    #[test]
    fn abandoned_words_are_found_wherever_they_stand() {
        for text in ["// The Oldman does it.", "let landlord = 1;", "const PATIENCE: u8 = 1;"] {
            assert_eq!(complaints("a.rs", text, &former()).len(), 1, "{text}");
        }
        assert!(
            complaints("a.rs", "// A Tree of an oldman.\nfn former() {}", &former()).is_empty()
        );
        assert!(complaints(OWN, "const PATIENCE: u8 = 1;", &former()).is_empty());
    }
}
