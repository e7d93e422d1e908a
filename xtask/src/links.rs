//! Checks the links of the documents: every relative link in a Markdown file of the repository
//! leads to an existing file and, if it names a heading, to a heading of that file.
//!
//! Links to other hosts are not followed: a check that needs the network fails when the network
//! does. Text in code blocks and code spans is not a link. Headings are named as GitHub and mdBook
//! name them: [`anchor`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Returns complaints about links that lead nowhere, one per line, each naming the document.
/// `files` are the files of the repository, as paths from its root, which is the working directory.
pub(crate) fn complaints(files: &[String]) -> Vec<String> {
    let documents = files.iter().filter(|file| file.ends_with(".md"));
    // A document that was deleted from the working tree has no links.
    let texts: BTreeMap<&str, String> = documents
        .filter_map(|file| Some((file.as_str(), fs::read_to_string(file).ok()?)))
        .collect();
    broken(files, &texts)
}

fn broken(files: &[String], texts: &BTreeMap<&str, String>) -> Vec<String> {
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        texts.iter().map(|(&file, text)| (file, headings(text))).collect();
    let mut complaints = Vec::new();
    for (&document, text) in texts {
        for (line, target) in links(text) {
            if let Some(why) = wrong(document, &target, files, &anchors) {
                complaints.push(format!("{document}: line {line}: the link {target} {why}"));
            }
        }
    }
    complaints
}

/// Returns the error of a link of a document; `None` if it leads somewhere, or to another host.
fn wrong(
    document: &str,
    target: &str,
    files: &[String],
    anchors: &BTreeMap<&str, BTreeSet<String>>,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = match target.split_once('#') {
        Some((path, heading)) => (path, Some(heading)),
        None => (target, None),
    };
    let file = if path.is_empty() {
        document.to_owned()
    } else {
        let Some(file) = resolve(document, path) else {
            return Some("leaves the repository".to_owned());
        };
        file
    };
    let folder = format!("{file}/");
    if !files.contains(&file) && !files.iter().any(|one| one.starts_with(&folder)) {
        return Some("leads to no file of the repository".to_owned());
    }
    let heading = heading?;
    let known = anchors.get(file.as_str()).is_some_and(|all| all.contains(heading));
    (!known).then(|| format!("leads to no heading of {file}"))
}

/// Returns the path from the root of the repository for a relative `path` in a document; `None` if
/// that is above the root.
pub(crate) fn resolve(document: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the lines of a text outside of code blocks, with their numbers. Only fences mark code
/// blocks, because an indented line can belong to a list.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns a line without its code spans. A code span that continues in the next line is not
/// recognized.
fn without_code(line: &str) -> String {
    if line.matches('`').count() % 2 == 1 {
        return line.to_owned();
    }
    line.split('`').step_by(2).collect()
}

/// Returns the targets of a text's links and images, each with the number of its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        // `[name]: target` defines a link.
        let defined = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let targets = inline.chain(defined.map(|(_, target)| target));
        // A title may follow the target.
        let targets = targets.filter_map(|target| target.split_whitespace().next());
        found.extend(targets.map(|target| (number, target.to_owned())));
    }
    found
}

/// Returns the anchors of a text's headings. Of headings with the same text, the second gets the
/// suffix `-1`, the third `-2`.
fn headings(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        let Some(title) = title.strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else {
            continue;
        };
        let name = anchor(title);
        let count = counts.entry(name.clone()).or_default();
        all.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    all
}

/// Returns the anchor of a heading: in lower case, with spaces as hyphens, without characters other
/// than letters, digits, `-` and `_`.
fn anchor(title: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    };
    title.trim().to_lowercase().chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code_only() {
        let text = "see [a](b.md) and ![c](d.svg \"title\")\n`[no](x)` [`f`](g.md#h)\n```\n[no](y)\n```\n[r]: z.md\n";
        let found: Vec<_> = links(text);
        let expected = [(1, "b.md"), (1, "d.svg"), (2, "g.md#h"), (6, "z.md")];
        assert_eq!(found, expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn headings_are_named_as_they_are_shown() {
        assert_eq!(
            anchor("Who caches: `--cache kernel|direct`"),
            "who-caches---cache-kerneldirect"
        );
        let all = headings("# One\n## One\n#No\n```\n# no\n```\n### Two words\n");
        assert_eq!(all, ["one", "one-1", "two-words"].map(str::to_owned).into());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_reported_with_its_line() {
        let files = ["README.md", "docs/a.md", "docs/b/c.svg"].map(str::to_owned);
        let complaints = |text: &str| {
            let texts = BTreeMap::from([
                ("README.md", "# Top\n".to_owned()),
                ("docs/a.md", text.to_owned()),
            ]);
            broken(&files, &texts)
        };
        let right =
            "[a](../README.md#top) [b](b/c.svg) [c](b) [d](#here) [e](https://e.org/f#g)\n# Here\n";
        assert_eq!(complaints(right), Vec::<String>::new());
        for wrong in ["../no.md", "../README.md#no", "#no", "../../x.md", "c.svg"] {
            let found = complaints(&format!("\n[a]({wrong})\n"));
            assert_eq!(found.len(), 1, "{wrong}: {found:?}");
            assert!(found[0].starts_with("docs/a.md: line 2: "), "{found:?}");
        }
    }
}
