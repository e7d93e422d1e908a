//! Scripts: several probes one after the other, with comments, as bpftrace has them.
//!
//! ```text
//! script   := declarations (probe | 'BEGIN' outside | 'END' outside
//!             | 'interval' ':' unit ':' number outside | 'config' '=' '{' … '}')*
//! outside  := '{' ((message | of_map '(' map ')') (',' | ';'))* '}'
//! of_map   := 'print' | 'clear' | 'delete' | 'zero'; `delete` may have a key, too
//! unit     := 's' | 'ms' | 'us' | 'hz'
//! ```
//!
//! A comment begins with `//`, and ends with the line, or is between `/*` and `*/`. It begins a
//! line, or follows a space, a `;` or a brace, since places can have such signs too.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::action::Do;
use crate::argument::Argument;
use crate::datum::{Datum, constant};
use crate::declarations::{self, Wrong};
use crate::expression::{self, call};
use crate::flow::{self, Part};
use crate::format::Format;
use crate::lowering::{Condition, Lowering};
use crate::map_kinds::MapKinds;
use crate::quotes::Quotes;
use crate::spec::{NotUnderstood, Spec};
use crate::statement;

/// Several probes, and the actions before, after and between them, which refit itself does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Done once the probes are installed.
    pub begin: Vec<Outside>,
    /// The probes.
    pub probes: Vec<Spec>,
    /// Done again and again.
    pub intervals: Vec<Interval>,
    /// Done when the probes are removed, before the results are printed.
    pub end: Vec<Outside>,
}

/// An action that refit does itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Prints a message.
    Message(Format),
    /// Prints a map.
    Print(String),
    /// Clears a map.
    Clear(String),
    /// Clears what a map has under a key.
    Delete {
        /// Its name.
        map: String,
        /// The parts of the key.
        key: Vec<Datum>,
    },
    /// Sets all results of a map to 0; its keys stay.
    Zero(String),
}

/// Actions that are done at an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The time from one to the next.
    pub every: Duration,
    /// The actions.
    pub actions: Vec<Outside>,
}

impl Script {
    /// Adds another script.
    pub fn extend(&mut self, other: Self) {
        self.begin.extend(other.begin);
        self.probes.extend(other.probes);
        self.intervals.extend(other.intervals);
        self.end.extend(other.end);
    }

    /// Says which key that is deleted outside has not as many parts as those of its map.
    fn check_keys(&self) -> Result<(), String> {
        let statements = || self.probes.iter().flat_map(|probe| &probe.actions);
        for action in self.outside() {
            let Outside::Delete { map, key } = action else { continue };
            let of = |one: &&statement::Statement| one.map.as_ref() == Some(map);
            let Some(other) = statements().find(of).filter(|one| one.by.len() != key.len()) else {
                continue;
            };
            let parts: Vec<_> = other.by.iter().map(ToString::to_string).collect();
            return Err(format!(
                "a key of `@{map}` is [{}] where it is assigned, and has {} parts in delete",
                parts.join(", "),
                key.len()
            ));
        }
        Ok(())
    }

    /// Returns all actions that refit does itself.
    pub fn outside(&self) -> impl Iterator<Item = &Outside> {
        let between = self.intervals.iter().flat_map(|interval| &interval.actions);
        self.begin.iter().chain(between).chain(&self.end)
    }
}

impl FromStr for Script {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        let wrong = |part: &str, what: String| NotUnderstood::new(part, what);
        let plain = without_comments(text).map_err(|what| wrong(text, what))?;
        let declared = declarations::parse(&plain);
        let (declared, begin) =
            declared.map_err(|Wrong { at, what }| NotUnderstood::at(&plain, at, what))?;
        let (declared, plain) = (Arc::new(declared), &plain[begin..]);
        let kinds = MapKinds::of(plain);
        let mut script = Self::default();
        for probe in blocks(plain).map_err(|what| wrong(text, what))? {
            let (head, _) = probe.split_once('{').unwrap_or((probe, ""));
            let outside =
                || outside(&declared.replace_constants(probe)).map_err(|what| wrong(probe, what));
            match head.trim() {
                "BEGIN" => script.begin.extend(outside()?),
                "END" => script.end.extend(outside()?),
                // Settings of bpftrace's own.
                head if head.strip_prefix("config").is_some_and(|rest| rest.trim() == "=") => {}
                head if head.starts_with("interval:") => {
                    let every = interval(head).map_err(|what| wrong(probe, what))?;
                    script.intervals.push(Interval { every, actions: outside()? });
                }
                head if begins_late(head) => {
                    let word = head.split_whitespace().next().unwrap_or_default();
                    let what = format!("`{word}` has to be before all probes, BEGIN and config");
                    return Err(wrong(probe, what));
                }
                _ => script.probes.push(Spec::parse(probe, &kinds, &declared)?),
            }
        }
        if script.probes.is_empty() {
            return Err(wrong(text, "no probe".to_owned()));
        }
        script.check_keys().map_err(|what| wrong(text, what))?;
        Ok(script)
    }
}

/// Whether a declaration is where a probe has to be.
fn begins_late(head: &str) -> bool {
    let word = head.split(|sign: char| !sign.is_ascii_alphanumeric()).next();
    head.starts_with('#')
        || word.is_some_and(|word| ["struct", "union", "enum", "typedef"].contains(&word))
}

/// Writes a message that needs no program.
pub fn render(format: &Format) -> String {
    let data: Option<Vec<Datum>> = format.arguments().iter().map(constant).collect();
    format.render(&data.unwrap_or_default())
}

/// Parses an interval: `interval:s:1`.
fn interval(head: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_millis(20);
    let parts: Vec<&str> = head.trim().split(':').collect();
    let wrong = || format!("`{head}` is no interval of 20 ms or more (write e.g. interval:s:1)");
    let [_, unit, number] = parts[..] else { return Err(wrong()) };
    let number: u32 = number.trim().parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    let every = match unit {
        "s" => Duration::from_secs(number.into()),
        "ms" => Duration::from_millis(number.into()),
        "us" => Duration::from_micros(number.into()),
        "hz" => Duration::from_secs(1) / number,
        _ => return Err(wrong()),
    };
    Some(every).filter(|every| *every >= LEAST).ok_or_else(wrong)
}

/// Parses a block of actions that need no program.
fn outside(block: &str) -> Result<Vec<Outside>, String> {
    let (_, rest) = block.split_once('{').ok_or("no `{`")?;
    let body = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let mut actions = Vec::new();
    for part in flow::divide(body)? {
        let Part::Action(item) = part else {
            return Err("`if` is not possible outside of a program".to_owned());
        };
        let name = |map: &str| {
            let name = map.trim().strip_prefix('@').ok_or_else(|| format!("`{map}` is no map"))?;
            expression::name(name, map)
        };
        if let Some(inner) = call(item, "delete") {
            actions.push(delete(inner)?);
            continue;
        }
        let words = ["print", "clear", "zero"];
        let of_map = words.iter().find_map(|word| Some((*word, call(item, word)?)));
        match of_map {
            Some(("print", map)) => actions.push(Outside::Print(name(map)?)),
            Some(("zero", map)) => actions.push(Outside::Zero(name(map)?)),
            Some((_, map)) => actions.push(Outside::Clear(name(map)?)),
            None => {
                let mut lowering = Lowering::new(item, &MapKinds::default());
                let parsed = statement::parse(item, &mut lowering, &Condition::new())?;
                for statement in parsed {
                    actions.push(Outside::Message(message(statement.what)?));
                }
            }
        }
    }
    Ok(actions)
}

/// Parses what is deleted.
fn delete(inner: &str) -> Result<Outside, String> {
    let (map, key) = statement::deleted(inner)?;
    if key.is_empty() {
        return Ok(Outside::Clear(map));
    }
    let known = |part: &Argument| {
        let unknown =
            || format!("`{part}` is not known outside of a program (write a number or a text)");
        constant(part).filter(|_| !matches!(part, Argument::Clock(_))).ok_or_else(unknown)
    };
    Ok(Outside::Delete { key: key.iter().map(known).collect::<Result<_, _>>()?, map })
}

/// Returns a message that needs no program.
fn message(what: Do) -> Result<Format, String> {
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
        let [Outside::Message(begin)] = &script.begin[..] else { panic!("{script:#?}") };
        assert_eq!(render(begin), "PID    TEXT // no comment\n");
        let [Outside::Message(end), first, second] = &script.end[..] else { panic!("{script:#?}") };
        assert_eq!(render(end), "over\n");
        let clear = |name: &str| Outside::Clear(name.to_owned());
        assert_eq!([first, second], [&clear(""), &clear("x")]);
        let [first, second] = &script.probes[..] else { panic!("{script:#?}") };
        assert_eq!((first.places.len(), first.actions.len()), (2, 2));
        assert!(first.actions.iter().all(|one| one.when.len() == 1));
        assert_eq!(first.places[0].module.as_deref(), Some("/usr/lib/*/libc.so.6"));
        assert!(second.leaving && !first.leaving);
    }

    #[test]
    fn constants_are_known_outside_of_programs() {
        let script = parse(
            "#define SIZE 3\nstruct a { int b[SIZE]; };
            BEGIN { printf(\"%d %d\", SIZE, sizeof(struct a)); } uprobe:a:b { count }",
        );
        let [Outside::Message(begin)] = &script.begin[..] else { panic!("{script:#?}") };
        assert_eq!(render(begin), "3 12");
    }

    #[test]
    fn actions_can_be_done_at_intervals() {
        let script = parse(
            "uprobe:a:b { @ = count() } interval:s:1 { print(@); clear(@) } interval:ms:20 {} interval:hz:50 { time(); zero(@a); delete(@b); delete(@c[1 + 2, \"x\"]); delete(@c, (-1, \"\")) }",
        );
        let every: Vec<_> = script.intervals.iter().map(|one| one.every.as_millis()).collect();
        assert_eq!(every, [1000, 20, 20]);
        let actions = &script.intervals[0].actions;
        assert_eq!(*actions, [Outside::Print(String::new()), Outside::Clear(String::new())]);
        let [_, actions @ ..] = &script.intervals[2].actions[..] else { panic!("{script:#?}") };
        let delete = |number: i64, text: &str| {
            let key = vec![Datum::Number(number.cast_unsigned()), Datum::Text(text.to_owned())];
            Outside::Delete { map: "c".to_owned(), key }
        };
        let wanted = [
            Outside::Zero("a".to_owned()),
            Outside::Clear("b".to_owned()),
            delete(3, "x"),
            delete(-1, ""),
        ];
        assert_eq!(actions, wanted);
        assert_eq!(script.outside().count(), 7);
    }

    #[test]
    fn scripts_begin_with_declarations() {
        let text = "#!/usr/bin/env refit\n/* types */\nenum e { SMALL = 16 };\n\
            struct a { int x; } // first\nuprobe:x:SMALL /arg0 > SMALL/ { @SMALL = sum(arg1 * SMALL) }";
        let script = parse(text);
        let [probe] = &script.probes[..] else { panic!("{script:#?}") };
        assert_eq!(probe.places[0].to_string(), "x:SMALL");
        let last = probe.actions.last().expect("an action");
        assert_eq!((last.map.as_deref(), last.when[0][0].than), (Some("SMALL"), 16));
        assert!(last.what.to_string().contains("(arg1 * 16)"), "{}", last.what);
        let wrong = "struct x { int y; };\nstruct z {\n\tint y;\n\tchar y; }\nuprobe:a:b { count }";
        let error = wrong.parse::<Script>().expect_err("twice");
        assert!(error.to_string().contains("the member `y` is there twice"), "{error}");
        assert_eq!(error.mark(), Some([" char y; }".to_owned(), "      ~".to_owned()]));
        let error = "struct a { int x; }".parse::<Script>().expect_err("nothing else");
        assert!(error.to_string().contains("no probe"), "{error}");
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
            ("END { delete(@x[tid]) } uprobe:a:b { count }", "`tid` is not known outside"),
            (
                "END { delete(@x[1]) } uprobe:a:b { @x[tid, arg0] = count() }",
                "a key of `@x` is [tid, arg0] where it is assigned, and has 1 parts",
            ),
            ("BEGIN { count } uprobe:a:b { count }", "`count` is not possible in BEGIN"),
            (
                "uprobe:a:b { count } #define A 1\nuprobe:a:c { count }",
                "`#define` has to be before",
            ),
            ("uprobe:a:b { count } struct a { int b; };", "`struct` has to be before"),
            ("interval:s:0 { } uprobe:a:b { count }", "`interval:s:0` is no interval"),
            ("interval:hz:51 { } uprobe:a:b { count }", "is no interval of 20 ms"),
            ("interval:h:1 { } uprobe:a:b { count }", "is no interval"),
            ("interval:s:1 { print(x) } uprobe:a:b { count }", "`x` is no map"),
            ("interval:s:1 { zero(@x[1]) } uprobe:a:b { count }", "no name of a map"),
            ("END { clear(x) } uprobe:a:b { count }", "`x` is no map"),
            ("END { if (1) { } } uprobe:a:b { count }", "`if` is not possible"),
            ("END { printf(\"%d\", tid) } uprobe:a:b { count }", "`tid` is not known in BEGIN"),
        ] {
            let error = text.parse::<Script>().expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
