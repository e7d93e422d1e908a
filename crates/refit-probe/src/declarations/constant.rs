//! Numbers that are known before a program runs: constants, the lengths of arrays and of bit
//! fields.

use super::declared::Declarations;
use super::measure::WORDS;
use super::tokens::{Token, Tokens, Wrong};
use crate::quotes::Quotes;

/// Operators by precedence, the loosest first.
const LEVELS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "%"]];
/// The most brackets and signs within each other.
const DEEPEST: usize = 32;

/// Evaluates a constant expression.
///
/// # Errors
/// The part that is no number, or that has too large a one.
pub(super) fn evaluate(tokens: &mut Tokens<'_>, known: &Declarations) -> Result<i64, Wrong> {
    Evaluation { tokens, known }.level(0, DEEPEST)
}

struct Evaluation<'e, 't> {
    tokens: &'e mut Tokens<'t>,
    known: &'e Declarations,
}

impl Evaluation<'_, '_> {
    fn level(&mut self, level: usize, deepest: usize) -> Result<i64, Wrong> {
        let Some(signs) = LEVELS.get(level) else { return self.one(deepest) };
        let mut left = self.level(level + 1, deepest)?;
        while let Some(sign) = self.tokens.peek().filter(|token| signs.contains(&token.text)) {
            self.tokens.take();
            let right = self.level(level + 1, deepest)?;
            let result = apply(sign.text, left, right);
            left = result.ok_or_else(|| sign.wrong("the number is not possible"))?;
        }
        Ok(left)
    }

    fn one(&mut self, deepest: usize) -> Result<i64, Wrong> {
        let Some(token) = self.tokens.take() else { return Err(self.tokens.ends("number")) };
        let deeper = deepest.checked_sub(1);
        let deeper = deeper.ok_or_else(|| token.wrong("too many brackets and signs"))?;
        let large = || token.wrong("the number is not possible");
        match token.text {
            "-" => self.one(deeper)?.checked_neg().ok_or_else(large),
            "+" => self.one(deeper),
            "~" => Ok(!self.one(deeper)?),
            "(" => {
                let inner = self.level(0, deeper)?;
                self.tokens.expect(")")?;
                Ok(inner)
            }
            word if WORDS.contains(&word) => {
                let inner = self.tokens.bracketed()?;
                let measured = self.known.measure(word, inner);
                let unknown = || format!("nothing before it says `{word}({inner})`");
                measured.ok_or_else(|| token.wrong(unknown()))
            }
            name if token.is_word() => {
                let known = self.known.constants.get(name).copied();
                known.ok_or_else(|| token.wrong(format!("`{name}` is no constant")))
            }
            _ => literal(token),
        }
    }
}

fn apply(sign: &str, left: i64, right: i64) -> Option<i64> {
    let count = u32::try_from(right).ok().filter(|count| *count < 64);
    match sign {
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "<<" => left.checked_mul(1_i64.checked_shl(count?)?),
        ">>" => left.checked_shr(count?),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        _ => left.checked_rem(right),
    }
}

/// Reads a number of C.
fn literal(token: Token<'_>) -> Result<i64, Wrong> {
    let plain = token.text.to_ascii_lowercase();
    let plain = plain.trim_end_matches(['u', 'l']);
    let found = match (plain.strip_prefix("0x"), plain.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => plain.parse().ok(),
    };
    found.map(u64::cast_signed).ok_or_else(|| token.wrong(format!("`{}` is no number", token.text)))
}

impl Declarations {
    /// Replaces constants, and sizes of the script's own types, by their numbers in a part of a
    /// probe, outside of quotes, and where no other name can be.
    pub(crate) fn replace_constants(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut quotes = Quotes::default();
        let mut rest = text;
        let named = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        while let Some(sign) = rest.chars().next() {
            let length = rest.find(|sign| !named(sign)).unwrap_or(rest.len()).max(sign.len_utf8());
            let (word, behind) = rest.split_at(length);
            let number = if quotes.within || is_other(&replaced) {
                None
            } else {
                let constant = self.constants.get(word).map(|number| (*number, behind));
                constant.or_else(|| self.measured(word, behind))
            };
            rest = behind;
            if let Some((number, behind)) = number {
                rest = behind;
                match number {
                    0.. => replaced.push_str(&number.to_string()),
                    _ => replaced.push_str(&format!("({number})")),
                }
            } else {
                word.chars().for_each(|sign| quotes.pass(sign));
                replaced.push_str(word);
            }
        }
        replaced
    }

    /// Returns the number that `sizeof` or `offsetof` is with the brackets behind it, and what
    /// follows these.
    fn measured<'t>(&self, word: &str, behind: &'t str) -> Option<(i64, &'t str)> {
        let mut tokens = Tokens::new(behind);
        let inner = WORDS.contains(&word).then(|| tokens.bracketed().ok())??;
        Some((self.measure(word, inner)?, tokens.rest()))
    }
}

/// Whether the next word is the name of a variable, a map, a member or a type.
fn is_other(before: &str) -> bool {
    let plain = before.trim_end();
    before.ends_with(['$', '@', '.'])
        || plain.ends_with("->")
        || plain.ends_with('.')
        || ["struct", "union", "enum"].iter().any(|word| plain.ends_with(word) && plain != before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_computed_as_in_c() {
        let constants = [("FOUR".to_owned(), 4)].into();
        let known = Declarations { constants, ..Declarations::default() };
        let evaluated = |text: &str| evaluate(&mut Tokens::new(text), &known);
        for (text, number) in [
            ("12", 12),
            ("0x1fUL", 31),
            ("017", 15),
            ("1 << 2 + 1", 8),
            ("2 + 3 * FOUR - 1", 13),
            ("-(FOUR | 3) / 2", -3),
            ("~0 & 0xff", 255),
            ("100 % 7 ^ 1", 3),
            ("sizeof(long) * sizeof (struct x *) + 1", 65),
        ] {
            assert_eq!(evaluated(text), Ok(number), "{text}");
        }
        for text in [
            "",
            "x",
            "1 / 0",
            "1 << 64",
            "((",
            "sizeof(x)",
            "sizeof(int",
            "sizeof int",
            "9999999999999999999999",
            "09",
            "@",
        ] {
            assert!(evaluated(text).is_err(), "{text}");
        }
        assert!(evaluated(&"(".repeat(100_000)).is_err());
    }

    #[test]
    fn constants_are_replaced_where_no_other_name_can_be() {
        let constants = [("RED".to_owned(), 7), ("LESS".to_owned(), -1)].into();
        let known = Declarations { constants, ..Declarations::default() };
        let replaced = known.replace_constants("arg0 == RED && RED_ != $RED[LESS]");
        assert_eq!(replaced, "arg0 == 7 && RED_ != $RED[(-1)]");
        let same = "@RED[args->RED, x.RED], \"RED\", (enum RED)arg0, (struct RED *)x -> RED";
        assert_eq!(known.replace_constants(same), same);
        assert_eq!(known.replace_constants("é RED"), "é 7");
    }
}
