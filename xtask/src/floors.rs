//! Checks the table of crates in `ARCHITECTURE.md`: it names every crate once, its floors ascend,
//! and a crate depends only on crates of floors below its own.
//!
//! Dependencies of tests do not count, since nothing that is built on a crate has them.

use std::collections::BTreeMap;

/// The document with the table.
pub(crate) const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The heading above the table.
const HEADING: &str = "## Crates, by floor";

/// Returns complaints about the table and the crates. `text_of` reads a file.
pub(crate) fn complaints(
    files: &[String],
    text_of: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let table = rows(&text_of(ARCHITECTURE).unwrap_or_default());
    let mut found = Vec::new();
    let unordered = table.windows(2).filter(|two| two[0].0 > two[1].0);
    found.extend(unordered.map(|two| format!("`{}` is out of order", two[1].1)));
    let mut floors: BTreeMap<&str, u32> = BTreeMap::new();
    for (floor, name) in &table {
        if floors.insert(name, *floor).is_some() {
            found.push(format!("`{name}` is there twice"));
        }
    }
    let crates = files.iter().filter_map(|file| {
        let name = file.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        Some((name, text_of(file)?))
    });
    for (name, manifest) in crates {
        let Some(floor) = floors.get(name) else {
            found.push(format!("`{name}` is missing"));
            continue;
        };
        let dependencies = dependencies(&manifest);
        let not_below = dependencies.iter().filter_map(|one| {
            let other = floors.get(one.as_str())?;
            (other >= floor).then(|| format!("`{name}` ({floor}) depends on `{one}` ({other})"))
        });
        found.extend(not_below);
    }
    found.into_iter().map(|what| format!("{ARCHITECTURE}: {HEADING}: {what}")).collect()
}

/// Returns the floors and names of the table, in its order.
fn rows(text: &str) -> Vec<(u32, String)> {
    let section = text.split_once(HEADING).map_or("", |(_, section)| section);
    let mut rows = Vec::new();
    for line in section.lines().take_while(|line| !line.starts_with("## ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, floor, names, ..] = cells[..] else { continue };
        let Ok(floor) = floor.parse() else { continue };
        rows.extend(names.split('`').skip(1).step_by(2).map(|name| (floor, name.to_owned())));
    }
    rows
}

/// Returns the names in the tables of a manifest that list dependencies of what is built.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut listed = false;
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end().trim_end_matches(']');
            listed = table.ends_with("dependencies") && !table.ends_with("dev-dependencies");
        } else if let (true, Some((name, _))) = (listed, line.split_once('=')) {
            names.extend(name.trim().split('.').next().map(str::to_owned));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(table: &str, manifest_of_a: &str) -> Vec<String> {
        let files = ["a", "b"].map(|name| format!("crates/{name}/Cargo.toml"));
        complaints(&files, |file| match file {
            ARCHITECTURE => Some(format!("{HEADING}\n\n{table}\n## Next\n| 0 | `c` | |\n")),
            "crates/a/Cargo.toml" => Some(manifest_of_a.to_owned()),
            _ => Some(String::new()),
        })
    }

    #[test]
    fn crates_depend_on_floors_below() {
        let manifest = "[dependencies]\n# b = \"1\"\nb = { workspace = true }\n";
        assert!(found("| 0 | `b` | |\n| 1 | `a` | |", manifest).is_empty());
        for table in ["| 0 | `a`, `b` | |", "| 0 | `a` | |\n| 1 | `b` | |"] {
            let found = found(table, manifest);
            assert!(found[0].contains("`a` (0) depends on `b`"), "{found:?}");
        }
    }

    #[test]
    fn dependencies_of_tests_do_not_count() {
        assert!(found("| 0 | `a`, `b` | |", "[dev-dependencies]\nb.workspace = true\n").is_empty());
        let target = "[target.'cfg(loom)'.dependencies]\nb.workspace = true\n";
        assert_eq!(found("| 0 | `a`, `b` | |", target).len(), 1);
    }

    #[test]
    fn every_crate_is_in_the_table_once_and_in_order() {
        assert!(found("| 0 | `a` | |", "")[0].ends_with("`b` is missing"));
        assert!(found("| 0 | `a`, `b` | |\n| 1 | `a` | |", "")[0].ends_with("`a` is there twice"));
        assert!(found("| 1 | `a` | |\n| 0 | `b` | |", "")[0].ends_with("`b` is out of order"));
    }
}
