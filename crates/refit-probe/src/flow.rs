//! Divides the body of a probe into actions, and blocks that run under a condition.
//!
//! ```text
//! body := (action (',' | ';') | block)*
//! block := 'if' '(' condition ')' '{' body '}' ['else' ('{' body '}' | block)]
//! ```

use crate::quotes::{self, Quotes};

/// A part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    /// An action.
    Action(&'t str),
    /// Two bodies, one of which runs.
    If {
        /// The condition.
        condition: &'t str,
        /// The body that runs if it holds.
        then: &'t str,
        /// The other one; empty if there is none.
        otherwise: &'t str,
    },
}

/// Divides a body.
///
/// # Errors
/// What a block lacks.
pub(crate) fn divide(body: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        if let Some(block) = begins_with(rest, "if") {
            let (condition, behind) =
                enclosed(block, '(', ')').ok_or("no `(condition)` after `if`")?;
            let (then, behind) = enclosed(behind, '{', '}').ok_or("no `{ }` after `if (…)`")?;
            let (otherwise, behind) = match begins_with(behind.trim_start(), "else") {
                None => ("", behind),
                Some(other) => alternative(other)?,
            };
            parts.push(Part::If { condition, then, otherwise });
            // A `;` may follow.
            rest = behind.trim_start();
            rest = rest.strip_prefix(';').unwrap_or(rest).trim_start();
            continue;
        }
        let end = quotes::end(rest);
        parts.push(Part::Action(rest[..end].trim()));
        rest = rest.get(end + 1..).unwrap_or_default().trim_start();
    }
    Ok(parts)
}

/// Returns what follows `else`, and what follows that.
fn alternative(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim_start();
    if let Some(inner) = enclosed(text, '{', '}') {
        return Ok(inner);
    }
    let mut rest = text;
    let behind = loop {
        if let Some((_, behind)) = enclosed(rest, '{', '}') {
            break behind;
        }
        let block = begins_with(rest, "if").ok_or("no `{ }` or `if` after `else`")?;
        let (_, behind) = enclosed(block, '(', ')').ok_or("no `(condition)` after `if`")?;
        let (_, behind) = enclosed(behind, '{', '}').ok_or("no `{ }` after `if (…)`")?;
        match begins_with(behind.trim_start(), "else") {
            Some(other) => rest = other.trim_start(),
            None => break behind,
        }
    };
    Ok((&text[..text.len() - behind.len()], behind))
}

/// Returns what follows a word; `None` if a text does not begin with it.
fn begins_with<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(word)?;
    rest.starts_with(|sign: char| sign.is_whitespace() || matches!(sign, '(' | '{')).then_some(rest)
}

/// Returns what is between the brackets with which a text begins, and what follows.
fn enclosed(text: &str, opens: char, closes: char) -> Option<(&str, &str)> {
    let inner = text.trim_start().strip_prefix(opens)?;
    let (mut depth, mut quotes) = (1_usize, Quotes::default());
    for (at, sign) in inner.char_indices() {
        quotes.pass(sign);
        match sign {
            _ if quotes.within => {}
            _ if sign == opens => depth += 1,
            _ if sign == closes => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((inner[..at].trim(), &inner[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_divided_into_actions_and_blocks() {
        assert_eq!(
            divide("count, by tid; @[a, b] = count();"),
            Ok(vec![
                Part::Action("count"),
                Part::Action("by tid"),
                Part::Action("@[a, b] = count()")
            ])
        );
        assert_eq!(divide("  "), Ok(Vec::new()));
        let text = "$a = 1; if (comm == \")\") { printf(\"}\"); if (b) { c } } d; ifs = 1";
        let parts = divide(text).expect("divided");
        assert_eq!(parts[0], Part::Action("$a = 1"));
        let (condition, then) = ("comm == \")\"", "printf(\"}\"); if (b) { c }");
        assert_eq!(parts[1], Part::If { condition, then, otherwise: "" });
        assert_eq!(parts[2..], [Part::Action("d"), Part::Action("ifs = 1")]);
    }

    #[test]
    fn alternatives_go_on() {
        let parts = divide("if (a) { b } else if (c) { d } else { e } f").expect("divided");
        let otherwise = "if (c) { d } else { e }";
        assert_eq!(parts, [Part::If { condition: "a", then: "b", otherwise }, Part::Action("f")]);
        assert_eq!(
            divide(otherwise).expect("divided"),
            [Part::If { condition: "c", then: "d", otherwise: "e" }]
        );
        for (text, what) in [
            ("if a { b }", "no `(condition)`"),
            ("if (a) b", "no `{ }` after `if"),
            ("if (a) { b", "no `{ }` after `if"),
            ("if (a) { b } else c", "after `else`"),
        ] {
            assert!(divide(text).expect_err(text).contains(what), "{text}");
        }
    }
}
