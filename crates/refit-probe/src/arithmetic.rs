//! Arithmetic on the numbers of messages: `elapsed / 1000000`. Refit does it when it prints.

use crate::quotes::Quotes;

/// An operator on signed numbers of 64 bits, which wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `&`
    And,
    /// `<<`
    Left,
    /// `>>`
    Right,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; the result of a division by 0 is 0
    Divide,
    /// `%`; the same
    Remainder,
}

/// Operators by precedence, as in C, the loosest first.
const LEVELS: [&[(&str, Operator)]; 6] = [
    &[("|", Operator::Or)],
    &[("^", Operator::Xor)],
    &[("&", Operator::And)],
    &[("<<", Operator::Left), (">>", Operator::Right)],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

impl Operator {
    /// Returns the result.
    pub fn apply(self, one: u64, other: u64) -> u64 {
        let (left, right) = (one.cast_signed(), other.cast_signed());
        let result = match self {
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::And => left & right,
            Self::Left => left.wrapping_shl(right as u32),
            // Without sign, so that addresses stay addresses.
            Self::Right => return one.wrapping_shr(right as u32),
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide if right == 0 => 0,
            Self::Divide => left.wrapping_div(right),
            Self::Remainder if right == 0 => 0,
            Self::Remainder => left.wrapping_rem(right),
        };
        result.cast_unsigned()
    }

    /// Returns its sign.
    pub fn sign(self) -> &'static str {
        let found = LEVELS.iter().flat_map(|level| level.iter()).find(|(_, one)| *one == self);
        found.map_or("", |(sign, _)| sign)
    }
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
    let (sign, operator) = level.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
    let (before, behind) = (text[..at].trim_end(), &text[at + sign.len()..]);
    // After another operator, or a cast, it is the sign of a number or an indirection.
    let cast = before.ends_with(')') && is_cast(before);
    let operand = before
        .chars()
        .last()
        .is_some_and(|last| last.is_alphanumeric() || matches!(last, ')' | '_' | '"') && !cast);
    (operand && !behind.trim().is_empty()).then_some((before, *operator, behind))
}

/// Whether a text ends with a cast, such as `(u32)`.
fn is_cast(text: &str) -> bool {
    let inner = text.rfind('(').map(|at| text[at + 1..text.len() - 1].trim());
    inner.is_some_and(|inner| {
        let (sign, bits) = inner.split_at_checked(1).unwrap_or(("", ""));
        matches!(sign, "u" | "i") && matches!(bits, "8" | "16" | "32" | "64")
    })
}

/// Says for each byte whether it is outside of brackets and quotes.
fn outside(text: &str) -> Vec<bool> {
    let (mut depth, mut quotes) = (0_usize, Quotes::default());
    let each = text.chars().flat_map(|sign| {
        quotes.pass(sign);
        match sign {
            _ if quotes.within => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        std::iter::repeat_n(depth == 0 && !quotes.within, sign.len_utf8())
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(text: &str) -> Option<(String, &'static str, String)> {
        let (left, operator, right) = divide(text)?;
        Some((left.trim().to_owned(), operator.sign(), right.trim().to_owned()))
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
    fn results_wrap_around_and_nothing_faults() {
        let least = i64::MIN.cast_unsigned();
        let minus = (-7_i64).cast_unsigned();
        for (one, operator, other, result) in [
            (7, Operator::Divide, 2, 3),
            (minus, Operator::Divide, 2, (-3_i64).cast_unsigned()),
            (minus, Operator::Remainder, 4, (-3_i64).cast_unsigned()),
            (7, Operator::Divide, 0, 0),
            (7, Operator::Remainder, 0, 0),
            (least, Operator::Divide, u64::MAX, least),
            (least, Operator::Remainder, u64::MAX, 0),
            (u64::MAX, Operator::Add, 2, 1),
            (least, Operator::Multiply, 2, 0),
            (1, Operator::Left, 65, 2),
            (u64::MAX, Operator::Right, 60, 15),
            (6, Operator::Xor, 3, 5),
        ] {
            assert_eq!(operator.apply(one, other), result, "{one} {operator:?} {other}");
        }
    }
}
