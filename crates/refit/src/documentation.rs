//! Checks that the command accepts the commands in the documents: every `refit …` in a code block
//! of the README, of `CONTRIBUTING.md`, of `docs/` and of the help texts is parsed as the shell and
//! the command would.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::cli::Cli;

/// Returns the words of a command line, up to the part that the shell interprets (`|`, `&`, `>`, a
/// comment); `None` if a quote is not closed.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut inside, mut quote) = (String::new(), false, None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (inside, quote) = (true, Some(c)),
            (None, '\\') => {
                inside = true;
                word.extend(chars.next());
            }
            (None, '#') if !inside => break,
            (None, '|' | '&' | '>' | '<' | ';' | ')') if !inside => break,
            (None, ';' | '&' | ')') if chars.peek().is_none_or(|next| next.is_whitespace()) => {
                break;
            }
            (None, c) if c.is_whitespace() => {
                if inside {
                    words.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            (None, c) => {
                inside = true;
                word.push(c);
            }
        }
    }
    if inside {
        words.push(word);
    }
    quote.is_none().then_some(words)
}

/// Returns the lines of code blocks, fenced or indented, that begin with `refit`, perhaps behind a
/// prompt, each with the lines in which a quote continues.
fn command_lines(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(last) = found.last_mut().filter(|last| words(last).is_none()) {
            last.extend(["\n", line.trim()]);
            continue;
        }
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced || line.starts_with("    ") {
            let line = line.trim_start().trim_start_matches(['$', '#']).trim_start();
            found.extend(line.starts_with("refit ").then(|| line.to_owned()));
        }
    }
    found
}

/// Returns the reason that a line is not accepted.
fn wrong(line: &str) -> Option<String> {
    // A pattern that stands for several commands, such as `refit shutdown [--kill]`, or that
    // continues in the next line.
    if line.contains('…') || line.contains("...") || line.contains(" [-") || line.ends_with('\\')
    {
        return None;
    }
    let Some(words) = words(line) else { return Some("a quote is not closed".to_owned()) };
    // Names of arguments, and variables of the shell, stand for process numbers there.
    let words = words.iter().map(|word| match word.starts_with('$') {
        true => "4711".to_owned(),
        false => word.replace("PID", "4711").replace("TID", "4712"),
    });
    let error = Cli::try_parse_from(words).err()?;
    error.use_stderr().then(|| error.to_string())
}

fn documents(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("it is part of the repository").flatten() {
        let path = entry.path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

#[test]
fn every_command_in_the_documents_is_understood() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = ["README.md", "CONTRIBUTING.md"].map(|name| top.join(name)).to_vec();
    documents(&top.join("docs"), &mut files);
    let (mut seen, mut faults) = (0, Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).expect("it is text");
        for line in command_lines(&text) {
            seen += 1;
            faults.extend(wrong(&line).map(|why| format!("{}: {line}\n  {why}", file.display())));
        }
    }
    assert!(seen > 50, "only {seen} were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_example_of_the_help_is_understood() {
    let mut faults = Vec::new();
    for command in Cli::command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with("refit "));
        faults.extend(lines.filter_map(|line| Some(format!("{line}\n  {}", wrong(line)?))));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn lines_are_read_as_a_shell_reads_them() {
    let read = |line| words(line).expect("quotes are closed").join("|");
    assert_eq!(read("refit swap 'fcm:/a b*' x # comment"), "refit|swap|fcm:/a b*|x");
    assert_eq!(read("refit mount a b &"), "refit|mount|a|b");
    assert_eq!(read("refit ls | head"), "refit|ls");
    assert_eq!(read("refit header > refit_move.h"), "refit|header");
    assert_eq!(read("refit wrap x fault 'error=EIO'"), "refit|wrap|x|fault|error=EIO");
    assert_eq!(words("refit 'open"), None);
    assert!(wrong("refit swap --no-such-option a b").is_some());
    assert!(wrong("refit swap a").is_some());
}
