//! Scripts: several probes one after the other, with comments, as bpftrace has them.
//!
//! ```text
//! script := (probe | 'BEGIN' '{' messages '}' | 'END' '{' (message | 'clear' '(' map ')')* '}'
//!           | 'config' '=' '{' … '}')*
//! ```
//!
//! A comment begins with `//`, and ends with the line, or is between `/*` and `*/`. It begins a
//! line, or follows a space, a `;` or a brace, since places can have such signs too.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::action::Do;
use crate::datum::{Datum, constant};
use crate::expression::{self, call};
use crate::flow::{self, Part};
use crate::format::Format;
use crate::lowering::{self, Condition, Lowering};
use crate::quotes::Quotes;
use crate::spec::{NotUnderstood, Spec};
use crate::statement;

/// Several probes, and the messages before and after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Messages that are printed once the probes are installed.
    pub begin: Vec<Format>,
    /// The probes.
    pub probes: Vec<Spec>,
    /// Messages that are printed when the probes are removed.
    pub end: Vec<Format>,
    /// The maps that END clears, whose results are not printed.
    pub clear: Vec<String>,
}

impl Script {
    /// Adds another script.
    pub fn extend(&mut self, other: Self) {
        self.begin.extend(other.begin);
        self.probes.extend(other.probes);
        self.end.extend(other.end);
        self.clear.extend(other.clear);
    }
}

impl FromStr for Script {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        let wrong = |part: &str, what: String| NotUnderstood::new(part, what);
        let plain = without_comments(text).map_err(|what| wrong(text, what))?;
        let functions = lowering::maps_of_functions(&plain);
        let mut script = Self::default();
        for probe in blocks(&plain).map_err(|what| wrong(text, what))? {
            let (head, _) = probe.split_once('{').unwrap_or((probe, ""));
            match head.trim() {
                "BEGIN" => {
                    let begin = self::messages(probe, None);
                    script.begin.extend(begin.map_err(|what| wrong(probe, what))?);
                }
                "END" => {
                    let end = self::messages(probe, Some(&mut script.clear));
                    script.end.extend(end.map_err(|what| wrong(probe, what))?);
                }
                // Settings of bpftrace's own.
                head if head.strip_prefix("config").is_some_and(|rest| rest.trim() == "=") => {}
                _ => script.probes.push(Spec::parse(probe, &functions)?),
            }
        }
        if script.probes.is_empty() {
            return Err(wrong(text, "no probe".to_owned()));
        }
        Ok(script)
    }
}

/// Writes a message that needs no program.
pub fn render(format: &Format) -> String {
    let data: Option<Vec<Datum>> = format.arguments().iter().map(constant).collect();
    format.render(&data.unwrap_or_default())
}

/// Parses a block of messages that need no program. END may also clear maps.
fn messages(block: &str, mut clear: Option<&mut Vec<String>>) -> Result<Vec<Format>, String> {
    let (_, rest) = block.split_once('{').ok_or("no `{`")?;
    let body = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let mut messages = Vec::new();
    for part in flow::divide(body)? {
        let Part::Action(item) = part else {
            return Err("`if` is not possible in BEGIN and END".to_owned());
        };
        if let (Some(map), Some(clear)) = (call(item, "clear"), &mut clear) {
            let name = map.trim().strip_prefix('@').ok_or_else(|| format!("`{map}` is no map"))?;
            clear.push(expression::name(name, map)?);
            continue;
        }
        let mut lowering = Lowering::new(item, &BTreeSet::new());
        let parsed = statement::parse(item, &mut lowering, &Condition::new())?;
        for statement in parsed {
            messages.push(known(statement.what)?);
        }
    }
    Ok(messages)
}

/// Returns a message that needs no program.
fn known(what: Do) -> Result<Format, String> {
    let Do::Print(format) = what else {
        return Err(format!("`{what}` is not possible in BEGIN and END, but printf is"));
    };
    match format.arguments().iter().find(|argument| constant(argument).is_none()) {
        None => Ok(format),
        Some(argument) => Err(format!("`{argument}` is not known in BEGIN and END")),
    }
}

/// Replaces comments by spaces, so that everything else stays where it is.
fn without_comments(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let (mut rest, mut quotes) = (text, Quotes::default());
    let mut before = '\n';
    while let Some(sign) = rest.chars().next() {
        let begins = before.is_whitespace() || matches!(before, ';' | '{' | '}');
        let length = match () {
            () if quotes.within || !begins => 0,
            () if rest.starts_with("//") || (rest.starts_with("#!") && plain.is_empty()) => {
                rest.find('\n').unwrap_or(rest.len())
            }
            () if rest.starts_with("/*") => {
                rest.find("*/").map(|at| at + 2).ok_or("no `*/` at the end of a comment")?
            }
            () => 0,
        };
        if length == 0 {
            quotes.pass(sign);
            plain.push(sign);
            before = sign;
            rest = &rest[sign.len_utf8()..];
        } else {
            let blank = |sign: char| if sign == '\n' { '\n' } else { ' ' };
            plain.extend(rest[..length].chars().map(blank));
            before = ' ';
            rest = &rest[length..];
        }
    }
    Ok(plain)
}

/// Divides a script after each closing brace.
fn blocks(text: &str) -> Result<Vec<&str>, String> {
    let (mut blocks, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    let mut quotes = Quotes::default();
    for (at, sign) in text.char_indices() {
        quotes.pass(sign);
        match sign {
            _ if quotes.within => {}
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1).ok_or("a `}` without a `{`")?;
                if depth == 0 {
                    blocks.push(text[begin..=at].trim());
                    begin = at + 1;
                }
            }
            _ => {}
        }
    }
    match text[begin..].trim() {
        "" => Ok(blocks),
        // A probe that is not complete, or none: its own error says more.
        rest => {
            blocks.push(rest);
            Ok(blocks)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Script {
        text.parse().unwrap_or_else(|error: NotUnderstood| panic!("{error}"))
    }

    #[test]
    fn scripts_have_several_probes_and_comments() {
        let script = parse(
            r#"#!/usr/bin/env refit
config = {
  missing_probes = ignore;
}
/*
 * Counts { and } "prints.
 */
BEGIN
{
    printf("%-6s %s // no comment\n", "PID", "TEXT"); // the title
}

uprobe:/usr/lib/*/libc.so.6:malloc,
uprobe:libc:calloc
/arg0 > 10/
{
    @["a } b", tid] = count();
    printf("{\"%d\"}\n", arg0);
}
uretprobe:libc:free { @ = count() } END { printf("over\n"); clear(@); clear(@x); } "#,
        );
        assert_eq!(
            script.begin.iter().map(render).collect::<String>(),
            "PID    TEXT // no comment\n"
        );
        assert_eq!(script.end.iter().map(render).collect::<String>(), "over\n");
        let [first, second] = &script.probes[..] else { panic!("{script:#?}") };
        assert_eq!((first.places.len(), first.actions.len()), (2, 2));
        assert!(first.actions.iter().all(|one| one.when.len() == 1));
        assert_eq!(script.clear, ["", "x"]);
        assert_eq!(first.places[0].module.as_deref(), Some("/usr/lib/*/libc.so.6"));
        assert!(second.leaving && !first.leaving);
    }

    #[test]
    fn what_is_wrong_with_a_script_is_told() {
        for (text, what) in [
            ("", "no probe"),
            ("// nothing", "no probe"),
            ("BEGIN { }", "no probe"),
            ("/* uprobe:a:b { count }", "no `*/`"),
            ("uprobe:a:b { count } }", "without a `{`"),
            ("uprobe:a:b { count } uprobe:c:d", "no `{ action }`"),
            ("uprobe:a:b { count } uprobe:c:d { count", "no closing `}`"),
            ("BEGIN { count } uprobe:a:b { count }", "`count` is not possible in BEGIN"),
            ("BEGIN { clear(@x) } uprobe:a:b { count }", "unknown action `clear(@x)`"),
            ("END { clear(x) } uprobe:a:b { count }", "`x` is no map"),
            ("END { if (1) { } } uprobe:a:b { count }", "`if` is not possible"),
            ("END { printf(\"%d\", tid) } uprobe:a:b { count }", "`tid` is not known in BEGIN"),
        ] {
            let error = text.parse::<Script>().expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
