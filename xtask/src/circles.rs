//! Finds circles between the modules of a crate: modules that use each other, directly or by way of
//! others.
//!
//! Files are the nodes. A file uses another one if it names one of its items by a path that begins
//! with `crate`, `super`, `self` or one of its own child modules. A name that a module only
//! re-exports counts as used from the module that defines it, and a re-export by itself uses
//! nothing. A parent may therefore re-export its children and define types that they need, as long
//! as it does not call them. Tests, and modules that are only declared, are ignored.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::module_paths::{Source, read};

/// Crates that may still have circles. A crate leaves this list with its last one.
pub(crate) const EXEMPT: [&str; 0] = [];

/// The modules of a crate by their paths from its root. The path of the root is empty.
type Modules = BTreeMap<Vec<String>, Source>;

/// Returns a complaint for each group of modules of a crate that use each other, and for each crate
/// in `exempt` that has no such group. `text_of` reads a file.
pub(crate) fn complaints(
    files: &[String],
    exempt: &[&str],
    text_of: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let crates = crates(files, text_of);
    let mut found = Vec::new();
    for (root, modules) in &crates {
        if !exempt.contains(&root.as_str()) {
            let circles = circles(modules).into_iter();
            found.extend(circles.map(|circle| format!("{root}: circle: {}", circle.join(" → "))));
        }
    }
    for root in exempt {
        if crates.get(*root).is_none_or(|modules| circles(modules).is_empty()) {
            found.push(format!("{root}: has no circle: take it off the list of exempt crates"));
        }
    }
    found
}

/// Reads the modules of each crate, by the folder of the crate.
fn crates(files: &[String], text_of: impl Fn(&str) -> Option<String>) -> BTreeMap<String, Modules> {
    let roots: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| {
            file.strip_suffix("/src/lib.rs").or_else(|| file.strip_suffix("/src/main.rs"))
        })
        .collect();
    let mut crates: BTreeMap<String, Modules> = BTreeMap::new();
    for file in files {
        let Some((root, within)) = file.split_once("/src/") else { continue };
        let Some(path) = module_path(within).filter(|_| roots.contains(root)) else { continue };
        let modules = crates.entry(root.to_owned()).or_default();
        // Beside a library, `main.rs` is the root of a crate of its own.
        if within == "main.rs" && modules.contains_key(&path) {
            continue;
        }
        if let Some(text) = text_of(file) {
            modules.insert(path, read(&text));
        }
    }
    crates
}

/// Returns the path of the module in this file below `src`; `None` if the file is the root of
/// another crate.
fn module_path(file: &str) -> Option<Vec<String>> {
    let stem = file.strip_suffix(".rs")?;
    if stem.starts_with("bin/") {
        return None;
    }
    let stem = match stem {
        "lib" | "main" => "",
        stem => stem.strip_suffix("/mod").unwrap_or(stem),
    };
    Some(stem.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

/// Returns the shortest circle of each group of modules that use each other, with the first module
/// repeated at its end.
fn circles(modules: &Modules) -> Vec<Vec<String>> {
    let uses: BTreeMap<&Vec<String>, BTreeSet<&Vec<String>>> =
        modules.iter().map(|(path, source)| (path, used(modules, path, source))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut all: Vec<Vec<&Vec<String>>> =
        uses.keys().filter_map(|&module| shortest(&uses, module)).collect();
    all.sort_by_key(Vec::len);
    for circle in all {
        // Other circles of the same group go through the same modules, or are longer.
        if circle.iter().all(|module| !seen.contains(module)) {
            found.push(circle.iter().map(|module| name(module)).collect());
        }
        seen.extend(circle);
    }
    found
}

fn name(module: &[String]) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

/// Returns the shortest path from a module back to itself.
fn shortest<'m>(
    uses: &BTreeMap<&'m Vec<String>, BTreeSet<&'m Vec<String>>>,
    module: &'m Vec<String>,
) -> Option<Vec<&'m Vec<String>>> {
    let mut before: BTreeMap<&Vec<String>, &Vec<String>> = BTreeMap::new();
    let mut queue = VecDeque::from([module]);
    while let Some(at) = queue.pop_front() {
        for &next in uses.get(at).into_iter().flatten() {
            if next == module {
                let mut way = vec![module, at];
                while way[way.len() - 1] != module {
                    way.push(before[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            before.entry(next).or_insert_with(|| {
                queue.push_back(next);
                at
            });
        }
    }
    None
}

/// Returns the modules that a module uses.
fn used<'m>(modules: &'m Modules, path: &[String], source: &Source) -> BTreeSet<&'m Vec<String>> {
    let own = source.paths.iter().map(|used| absolute(modules, path, used));
    let found = own.flatten().filter_map(|used| resolve(modules, &used, 0));
    found.filter(|module| module.as_slice() != path).collect()
}

/// Returns a path as written by a module, relative to the root of the crate; `None` if it begins
/// with another crate.
fn absolute(modules: &Modules, module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        child => {
            base.push(child.to_owned());
            modules.get(&base)?;
            base.pop();
        }
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// Returns the module that defines the item at the end of a path.
fn resolve<'m>(modules: &'m Modules, path: &[String], depth: usize) -> Option<&'m Vec<String>> {
    /// The maximum length of a chain of re-exports.
    const DEEPEST: usize = 8;
    let known = (0..=path.len()).rev().find(|&length| modules.contains_key(&path[..length]))?;
    let (module, source) = modules.get_key_value(&path[..known])?;
    let Some(item) = path.get(known).filter(|_| depth < DEEPEST) else { return Some(module) };
    let exported = source.exports.iter().filter(|export| export.last() == Some(item));
    let whole =
        source.exports.iter().filter(|export| export.last().is_some_and(|last| last == "*"));
    for export in exported.chain(whole) {
        let mut target = export.clone();
        if target.last().is_some_and(|last| last == "*") {
            target.pop();
            target.push(item.clone());
        }
        let Some(target) = absolute(modules, module, &target) else { continue };
        let found = resolve(modules, &target, depth + 1);
        if let Some(found) =
            found.filter(|found| *found != module && defines(modules, found, &target))
        {
            return Some(found);
        }
    }
    Some(module)
}

/// Returns whether a module defines the name at the end of a path, or is itself the target of the
/// path.
fn defines(modules: &Modules, module: &[String], path: &[String]) -> bool {
    let name = path.last();
    path == module || name.is_some_and(|name| modules[module].words.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let names: Vec<String> = files.iter().map(|(name, _)| format!("x/src/{name}")).collect();
        let text = |file: &str| {
            let text = files.iter().find(|(name, _)| file.strip_prefix("x/src/") == Some(name));
            text.map(|(_, text)| (*text).to_owned())
        };
        complaints(&names, &[], text)
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "use crate::b::B;\npub struct A;\n"),
            ("b.rs", "pub struct B;\nfn f() { super::c::g() }\n"),
            ("c.rs", "use std::io;\nuse super::{a::{A, D}, io2};\npub fn g() {}\n"),
        ];
        assert_eq!(found(&files), ["x: circle: a → b → c → a"]);
        assert!(found(&files[..3]).is_empty());
    }

    #[test]
    fn crates_are_exempt_as_long_as_they_have_circles() {
        let files = ["lib.rs", "a.rs", "b.rs"].map(|name| format!("x/src/{name}"));
        let circle = |file: &str| match file {
            "x/src/a.rs" => Some("use crate::b::B;\npub struct A;\n".to_owned()),
            "x/src/b.rs" => Some("use crate::a::A;\npub struct B;\n".to_owned()),
            _ => Some("mod a;\nmod b;\n".to_owned()),
        };
        assert!(complaints(&files, &["x"], circle).is_empty());
        assert_eq!(complaints(&files, &["x"], |_| Some(String::new())).len(), 1);
        assert_eq!(complaints(&files[..0], &["x"], circle).len(), 1);
    }

    #[test]
    fn a_child_may_use_its_parent_if_that_does_not_call_it() {
        let parent = "mod child;\npub use child::F;\npub struct P;\n";
        let child = ("p/child.rs", "use super::P;\npub struct F;\n");
        assert!(found(&[("lib.rs", "mod p;\n"), ("p/mod.rs", parent), child]).is_empty());
        for call in ["fn f() { child::f() }\n", "fn f(_: F) {}\n"] {
            let files = [("lib.rs", "mod p;\n"), ("p/mod.rs", &format!("{parent}{call}")), child];
            assert_eq!(found(&files), ["x: circle: p → p::child → p"], "{call}");
        }
    }

    #[test]
    fn what_is_re_exported_is_used_where_it_is_defined() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;\n"),
            ("a.rs", "pub struct A;\n"),
            ("b.rs", "use crate::A;\npub struct B;\n"),
        ];
        assert!(found(&files).is_empty());
        let back = ("a.rs", "pub struct A;\nfn f(_: crate::B) {}\n");
        assert_eq!(found(&[files[0], back, files[2]]), ["x: circle: a → b → a"]);
    }

    #[test]
    fn tests_comments_and_inner_modules_make_no_circle() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "// crate::b\nmod inner {\n    use super::A;\n}\npub struct A;\n"),
            ("b.rs", "use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n"),
        ];
        assert!(found(&files).is_empty());
        let test = ("a.rs", "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n");
        assert!(found(&[files[0], test, files[2]]).is_empty());
    }
}
