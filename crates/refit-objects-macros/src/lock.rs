//! `interface.lock`: a record of a crate's interfaces, which keeps them compatible.
//!
//! A text file next to the crate's `Cargo.toml`, with a line for each method, in the order of the
//! vtable: the interface, the version that has added the method, its name, and its types. Lines are
//! only ever added, behind those of the same interface. If the file exists, an interface that
//! disagrees with it does not compile.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;
use syn::Error;

use crate::parse::{Interface, Method};

const FILE: &str = "interface.lock";

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    since: u32,
    method: &'a str,
    signature: &'a str,
}

/// Checks an interface against the file of the crate that is being compiled. Returns code that
/// makes cargo recompile the crate when the file changes.
pub(crate) fn check(interface: &Interface) -> syn::Result<TokenStream> {
    let Ok(root) = std::env::var("CARGO_MANIFEST_DIR") else { return Ok(TokenStream::new()) };
    let Ok(text) = std::fs::read_to_string(Path::new(&root).join(FILE)) else {
        return Ok(TokenStream::new());
    };
    let methods: Vec<_> = interface.methods.iter().map(known).collect();
    let arguments = &interface.arguments;
    compare(&text, &arguments.name.value(), arguments.version, &methods)
        .map_err(|what| Error::new(interface.item.ident.span(), what))?;
    Ok(quote! { const _: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", #FILE)); })
}

fn known(method: &Method) -> (String, String) {
    (method.name.to_string(), method.signature.clone())
}

/// Returns the lines of one interface.
fn lines<'a>(text: &'a str, interface: &str) -> Result<Vec<Line<'a>>, String> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.splitn(4, ' ');
        let parts = (words.next(), words.next().map(str::parse), words.next(), words.next());
        let (Some(name), Some(Ok(since)), Some(method), Some(signature)) = parts else {
            let what = "is not INTERFACE VERSION METHOD SIGNATURE";
            return Err(format!("{FILE}: line {} {what}", number + 1));
        };
        if name == interface {
            lines.push(Line { since, method, signature });
        }
    }
    Ok(lines)
}

fn compare(
    text: &str,
    interface: &str,
    version: u32,
    methods: &[(String, String)],
) -> Result<(), String> {
    let lines = lines(text, interface)?;
    let locked = lines.iter().map(|line| line.since).max().unwrap_or(0);
    for (index, line) in lines.iter().enumerate() {
        let Line { since, method, signature } = line;
        let place = format!("interface {interface}: method {index} is {method}");
        match methods.get(index) {
            Some((name, types)) if name == method && types == signature => {}
            Some((name, types)) if name == method => {
                return Err(format!(
                    "{place}, {signature} since version {since}; version {version} has {types}. Implementations that \
                     were built apart would misread it: leave it, and append a method with another name"
                ));
            }
            Some((name, _)) if methods.iter().any(|(name, _)| name == method) => {
                return Err(format!(
                    "{place} since version {since}; version {version} has {name} there. Methods keep their places: \
                     append {name} after the last one"
                ));
            }
            _ => {
                return Err(format!(
                    "{place} since version {since}; version {version} does not have it. References that still use it \
                     would call another method: keep it, let it refuse, or give the interface another name"
                ));
            }
        }
    }
    let new = &methods[lines.len()..];
    let line = |since: u32| {
        let lines = new.iter().map(|(name, types)| format!("{interface} {since} {name} {types}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    if !new.is_empty() && version <= locked {
        let since = locked + 1;
        return Err(format!(
            "interface {interface}: {} was appended, but the version is still {version}; write `version = {since}`, \
             and add to {FILE}:\n{}",
            new[0].0,
            line(since)
        ));
    }
    if !new.is_empty() {
        return Err(format!(
            "interface {interface}: {} is not in {FILE}; add:\n{}",
            new[0].0,
            line(version)
        ));
    }
    if version != locked {
        return Err(format!(
            "interface {interface}: the version is {version}, but {FILE} has methods up to version {locked}; write \
             `version = {locked}`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "\
# comment
store 1 put fn(&self, u64)
other 7 x fn(&self)
store 1 get fn(&self) -> u64
store 2 len fn(&self) -> u64
";

    fn store(version: u32, methods: &[(&str, &str)]) -> Result<(), String> {
        let methods: Vec<_> =
            methods.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
        compare(LOCK, "store", version, &methods)
    }

    const PUT: (&str, &str) = ("put", "fn(&self, u64)");
    const GET: (&str, &str) = ("get", "fn(&self) -> u64");
    const LEN: (&str, &str) = ("len", "fn(&self) -> u64");
    const NEW: (&str, &str) = ("new", "fn(&self)");

    #[test]
    fn what_was_promised_is_kept() {
        assert_eq!(store(2, &[PUT, GET, LEN]), Ok(()));
    }

    #[test]
    fn every_broken_promise_names_the_method_and_both_versions() {
        let broken = |version, methods: &[(&str, &str)], parts: &[&str]| {
            let error = store(version, methods).expect_err("it is broken");
            for part in parts {
                assert!(error.contains(part), "{part} in {error}");
            }
        };
        broken(
            3,
            &[PUT, NEW, GET, LEN],
            &["1 is get since version 1", "version 3 has new", "append new"],
        );
        broken(3, &[PUT, GET], &["method 2 is len since version 2", "version 3 does not have it"]);
        broken(2, &[GET, PUT, LEN], &["0 is put", "has get there"]);
        broken(
            2,
            &[PUT, ("get", "fn(&self) -> u32"), LEN],
            &["-> u64 since version 1", "has fn(&self) -> u32"],
        );
        broken(2, &[PUT, GET, LEN, NEW], &["still 2", "`version = 3`", "store 3 new fn(&self)"]);
        broken(3, &[PUT, GET, LEN, NEW], &["not in interface.lock; add:\nstore 3 new fn(&self)"]);
        broken(3, &[PUT, GET, LEN], &["the version is 3", "`version = 2`"]);
    }

    #[test]
    fn a_new_interface_is_told_its_lines_and_a_bad_line_its_number() {
        let methods = [("x".to_owned(), "fn(&self)".to_owned())];
        let error = compare("", "fresh", 1, &methods).expect_err("it is not there");
        assert!(error.ends_with("add:\nfresh 1 x fn(&self)"), "{error}");
        let error = compare("store one x", "store", 1, &methods).expect_err("no number");
        assert!(error.contains("line 1 is not"), "{error}");
    }
}
