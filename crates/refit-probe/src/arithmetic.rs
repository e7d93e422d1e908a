//! Divides expressions at their operators: `elapsed / 1000000`, `@start[tid] != 0 ? 1 : 2`.

use refit_splice::{Operator, Relation};

use crate::quotes::{self, Quotes};
use crate::type_name::TypeName;

/// Operators by precedence, as in C, the loosest first.
const LEVELS: [&[(&str, Operator)]; 10] = [
    &[("||", Operator::Either)],
    &[("&&", Operator::Both)],
    &[("|", Operator::Or)],
    &[("^", Operator::Xor)],
    &[("&", Operator::And)],
    &[("==", Operator::Compare(Relation::Equal)), ("!=", Operator::Compare(Relation::Unequal))],
    &[
        ("<=", Operator::Compare(Relation::AtMost)),
        (">=", Operator::Compare(Relation::AtLeast)),
        ("<", Operator::Compare(Relation::Less)),
        (">", Operator::Compare(Relation::More)),
    ],
    &[("<<", Operator::Left), (">>", Operator::Right)],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

/// Returns the sign of an operator.
pub(crate) fn sign(operator: Operator) -> &'static str {
    let found = LEVELS.iter().flat_map(|level| level.iter()).find(|(_, one)| *one == operator);
    found.map_or("", |(sign, _)| sign)
}

/// Divides `condition ? one : other`, if a text is that.
pub(crate) fn choice(text: &str) -> Option<[&str; 3]> {
    let outside = outside(text);
    let signs = |wanted| text.match_indices(wanted).map(|(at, _)| at).filter(|&at| outside[at]);
    let asks = signs('?').next()?;
    let mut open = 0_usize;
    for (at, sign) in text.char_indices().skip_while(|(at, _)| *at <= asks) {
        match sign {
            _ if !outside[at] => {}
            '?' => open += 1,
            ':' if open == 0 => return Some([&text[..asks], &text[asks + 1..at], &text[at + 1..]]),
            ':' => open -= 1,
            _ => {}
        }
    }
    None
}

/// Counts the operators and brackets outside of quotes.
pub(crate) fn signs(text: &str) -> usize {
    let mut quotes = Quotes::default();
    let signs = text.chars().filter(|&sign| {
        quotes.pass(sign);
        !quotes.within && "|^&=!<>+-*/%~?([".contains(sign)
    });
    signs.count()
}

/// Divides a text at each `sign` outside of brackets and quotes.
pub(crate) fn split_at<'t>(text: &'t str, sign: &str) -> Vec<&'t str> {
    let outside = outside(text);
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, _) in text.match_indices(sign).filter(|(at, _)| outside[*at]) {
        parts.push(&text[begin..at]);
        begin = at + sign.len();
    }
    parts.push(&text[begin..]);
    parts
}

/// Divides an expression at the operator that is applied last; `None` if it has none outside of
/// brackets and quotes.
pub(crate) fn divide(text: &str) -> Option<(&str, Operator, &str)> {
    let outside = outside(text);
    LEVELS.iter().find_map(|level| {
        // Operators of one level are applied from left to right.
        let ends = text.char_indices().rev().filter(|(at, _)| outside[*at]);
        ends.filter_map(|(at, _)| operator(text, at, level)).next()
    })
}

/// Returns the operator of a level that begins at `at`, with its operands.
fn operator<'t>(
    text: &'t str,
    at: usize,
    level: &[(&str, Operator)],
) -> Option<(&'t str, Operator, &'t str)> {
    // The arrow before a member.
    let arrow = |before: &str, behind: &str| before.ends_with('-') && behind.starts_with('>');
    if arrow(&text[..at], &text[at..]) || text[at..].starts_with("->") {
        return None;
    }
    // `<` is no operator where `<<` or `<=` is one.
    let here = LEVELS.iter().flat_map(|level| level.iter());
    let here = here.filter(|(sign, _)| text[at..].starts_with(sign));
    let (longest, _) = here.max_by_key(|(sign, _)| sign.len())?;
    let (sign, operator) = level.iter().find(|(sign, _)| sign == longest)?;
    let (before, behind) = (text[..at].trim_end(), &text[at + sign.len()..]);
    // After another operator, or a cast, it is the sign of a number or an indirection.
    let cast = before.ends_with(')') && is_cast(before);
    let operand = before.chars().last().is_some_and(|last| {
        last.is_alphanumeric() || matches!(last, ')' | ']' | '_' | '"') && !cast
    });
    (operand && !behind.trim().is_empty()).then_some((before, *operator, behind))
}

/// Whether a text ends with a cast, such as `(u32)` or `(struct request *)`.
fn is_cast(text: &str) -> bool {
    let inner = text.rfind('(').filter(|at| {
        // The brackets of `sizeof` are behind its name.
        !text[..*at].trim_end().ends_with(|sign: char| sign.is_ascii_alphanumeric() || sign == '_')
    });
    let inner = inner.map(|at| &text[at + 1..text.len() - 1]);
    inner.and_then(TypeName::parse).is_some_and(|name| name.is_certain())
}

/// Says for each byte whether it is outside of brackets and quotes.
fn outside(text: &str) -> Vec<bool> {
    let mut outside = vec![false; text.len()];
    for (at, sign) in quotes::outside(text) {
        outside[at..at + sign.len_utf8()].fill(true);
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(text: &str) -> Option<(String, &'static str, String)> {
        let (left, operator, right) = divide(text)?;
        Some((left.trim().to_owned(), sign(operator), right.trim().to_owned()))
    }

    #[test]
    fn expressions_are_divided_at_the_last_operator() {
        for (text, left, sign, right) in [
            ("a + b * c", "a", "+", "b * c"),
            ("a - b - c", "a - b", "-", "c"),
            ("(a + b) / c", "(a + b)", "/", "c"),
            ("a<<2|b&7", "a<<2", "|", "b&7"),
            ("elapsed/1000000", "elapsed", "/", "1000000"),
            ("arg0 - -1", "arg0", "-", "-1"),
            ("arg0 * *(arg1 + 8)", "arg0", "*", "*(arg1 + 8)"),
            ("(u32)arg0 + 1", "(u32)arg0", "+", "1"),
            ("args->a->b * 2", "args->a->b", "*", "2"),
            ("$a - $p->b", "$a", "-", "$p->b"),
            ("$a > $p->b", "$a", ">", "$p->b"),
            ("1 + *(int *)arg0", "1", "+", "*(int *)arg0"),
            ("sizeof(int) * 2", "sizeof(int)", "*", "2"),
            ("str(arg0) + \"a + b\"", "str(arg0)", "+", "\"a + b\""),
        ] {
            let wanted = (left.to_owned(), sign, right.to_owned());
            assert_eq!(divided(text), Some(wanted), "{text}");
        }
        for text in [
            "arg0",
            "*(arg0 + 16)",
            "*arg0",
            "(u32)*(arg0 + 4)",
            "(int8)*arg0",
            "args->a",
            "*(struct s *)arg0",
            "(struct s *)*arg0",
            "((struct s *)arg0)->a->b",
            "-1",
            "\"a+b\"",
            "(a + b)",
            "a +",
            "",
        ] {
            assert_eq!(divided(text), None, "{text}");
        }
    }

    #[test]
    fn relations_and_shifts_are_told_apart() {
        for (text, left, sign, right) in [
            ("a << 2 < b", "a << 2", "<", "b"),
            ("a <= b", "a", "<=", "b"),
            ("a & b && c | d", "a & b", "&&", "c | d"),
            ("@x[a || b] || !c", "@x[a || b]", "||", "!c"),
            ("a == b != c", "a == b", "!=", "c"),
            ("a >> 1", "a", ">>", "1"),
            ("comm == \"a == b\"", "comm", "==", "\"a == b\""),
        ] {
            let wanted = (left.to_owned(), sign, right.to_owned());
            assert_eq!(divided(text), Some(wanted), "{text}");
        }
        assert_eq!(divided("!a"), None);
        assert_eq!(split_at("a || (b || c) || \"||\"", "||"), ["a ", " (b || c) ", " \"||\""]);
    }

    #[test]
    fn choices_are_divided_at_their_own_signs() {
        assert_eq!(choice("a ? b : c"), Some(["a ", " b ", " c"]));
        assert_eq!(choice("a ? b ? 1 : 2 : c"), Some(["a ", " b ? 1 : 2 ", " c"]));
        assert_eq!(choice("a ? 1 : b ? 2 : 3"), Some(["a ", " 1 ", " b ? 2 : 3"]));
        for text in ["a", "(a ? b : c)", "\"a ? b : c\"", "a ? b"] {
            assert_eq!(choice(text), None, "{text}");
        }
    }
}
