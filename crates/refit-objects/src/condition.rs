//! The condition that an object has to meet during probation: `errors == 0 && p99 < 1.2 × before`.
//!
//! A condition compares measurements after a swap with numbers and with measurements before it:
//!
//! ```text
//! condition  = all { "||" all }
//! all        = comparison { "&&" comparison }
//! comparison = value ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) value | "(" condition ")"
//! value      = factor { ( "×" | "*" ) factor }
//! factor     = number [ unit ] | measure | "before" [ "." measure ]
//! ```
//!
//! `before` alone is the measure on the other side of the comparison, as it was before the swap.
//! Times are in nanoseconds, or have a unit (`ns`, `us`, `µs`, `ms`, `s`).
//!
//! A comparison that lacks a measurement holds: a time of calls is missing if there were no calls,
//! and every measure of `before` is missing if there were no calls before the swap. So an object
//! without calls meets every condition that compares only such measures.

use std::fmt;
use std::str::FromStr;

/// A measure of an object's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The number of calls.
    Calls,
    /// The number of calls that returned an error or panicked.
    Errors,
    /// Calls per second.
    Rate,
    /// The mean time of a call, in nanoseconds.
    Mean,
    /// The median time of a call, in nanoseconds.
    P50,
    /// The 90th percentile of the time of calls, in nanoseconds.
    P90,
    /// The 99th percentile of the time of calls, in nanoseconds.
    P99,
    /// The time of the longest call, in nanoseconds.
    Max,
}

const MEASURES: [(&str, Measure); 8] = [
    ("calls", Measure::Calls),
    ("errors", Measure::Errors),
    ("rate", Measure::Rate),
    ("mean", Measure::Mean),
    ("p50", Measure::P50),
    ("p90", Measure::P90),
    ("p99", Measure::P99),
    ("max", Measure::Max),
];

/// The measurements of some period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that returned an error or panicked.
    pub errors: u64,
    /// The length of the period, in seconds.
    pub seconds: f64,
    /// The mean time of a call, in nanoseconds.
    pub mean: f64,
    /// The median time of a call, in nanoseconds.
    pub p50: u64,
    /// The 90th percentile of the time of calls, in nanoseconds.
    pub p90: u64,
    /// The 99th percentile of the time of calls, in nanoseconds.
    pub p99: u64,
    /// The time of the longest call, in nanoseconds.
    pub max: u64,
}

impl Measured {
    /// Returns a measure; `None` if it is a time of calls, and there were none.
    fn get(&self, measure: Measure) -> Option<f64> {
        let timed = !matches!(measure, Measure::Calls | Measure::Errors | Measure::Rate);
        (!timed || self.calls > 0).then(|| self.value(measure))
    }

    fn value(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Calls => self.calls as f64,
            Measure::Errors => self.errors as f64,
            Measure::Rate if self.seconds > 0.0 => self.calls as f64 / self.seconds,
            Measure::Rate => 0.0,
            Measure::Mean => self.mean,
            Measure::P50 => self.p50 as f64,
            Measure::P90 => self.p90 as f64,
            Measure::P99 => self.p99 as f64,
            Measure::Max => self.max as f64,
        }
    }
}

/// A parsed condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    /// One of these must hold, with all of its clauses.
    any: Vec<Vec<Clause>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Clause {
    Compare { left: Vec<Factor>, comparison: Comparison, right: Vec<Factor>, text: String },
    Nested(Condition),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Factor {
    Number(f64),
    Now(Measure),
    Before(Measure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The error that a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a condition: {why}; write e.g. errors == 0 && p99 < 1.2 × before")]
pub struct NoCondition {
    text: String,
    why: String,
}

impl Condition {
    /// Returns the clauses that do not hold, with their numbers; `None` if the condition holds.
    pub fn violation(&self, before: &Measured, after: &Measured) -> Option<String> {
        let mut violations = Vec::new();
        for all in &self.any {
            match all.iter().find_map(|clause| clause.violation(before, after)) {
                None => return None,
                Some(violation) => violations.push(violation),
            }
        }
        Some(violations.join(", and "))
    }
}

impl Clause {
    fn violation(&self, before: &Measured, after: &Measured) -> Option<String> {
        let (left, comparison, right, text) = match self {
            Clause::Nested(condition) => return condition.violation(before, after),
            Clause::Compare { left, comparison, right, text } => (left, comparison, right, text),
        };
        let value = |factors: &[Factor]| -> Option<f64> {
            let factor = |factor: &Factor| match factor {
                Factor::Number(number) => Some(*number),
                Factor::Now(measure) => after.get(*measure),
                Factor::Before(measure) if before.calls > 0 => before.get(*measure),
                Factor::Before(_) => None,
            };
            factors.iter().map(factor).product()
        };
        let (Some(left), Some(right)) = (value(left), value(right)) else { return None };
        let holds = match comparison {
            Comparison::Equal => left == right,
            Comparison::Unequal => left != right,
            Comparison::Less => left < right,
            Comparison::AtMost => left <= right,
            Comparison::More => left > right,
            Comparison::AtLeast => left >= right,
        };
        (!holds).then(|| format!("{text} does not hold: {left:.0} and {right:.0}"))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = NoCondition;

    fn from_str(text: &str) -> Result<Self, NoCondition> {
        let wrong = |why| NoCondition { text: text.to_owned(), why };
        let tokens = tokens(text).map_err(wrong)?;
        let mut parser = Parser { tokens: &tokens, depth: 0 };
        let condition = parser.condition().map_err(wrong)?;
        match parser.tokens.first() {
            None => Ok(Condition { text: text.trim().to_owned(), ..condition }),
            Some(rest) => Err(wrong(format!("unexpected {rest:?}"))),
        }
    }
}

/// Splits a text into words, numbers with their units, and operators.
fn tokens(text: &str) -> Result<Vec<&str>, String> {
    const SIGNS: [&str; 12] = ["&&", "||", "==", "!=", "<=", ">=", "<", ">", "×", "*", "(", ")"];
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '.' || c == '_';
        let length = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => sign.len(),
            None if word(first) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            None => return Err(format!("unexpected {first:?}")),
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    /// The number of open parentheses.
    depth: u32,
}

impl Parser<'_> {
    /// The maximum depth of nested parentheses.
    const MAX_DEPTH: u32 = 32;

    fn take(&mut self, wanted: &str) -> bool {
        let found = self.tokens.first() == Some(&wanted);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn condition(&mut self) -> Result<Condition, String> {
        let begin = self.tokens;
        let mut any = vec![self.all()?];
        while self.take("||") {
            any.push(self.all()?);
        }
        Ok(Condition { text: self.since(begin), any })
    }

    fn all(&mut self) -> Result<Vec<Clause>, String> {
        let mut all = vec![self.clause()?];
        while self.take("&&") {
            all.push(self.clause()?);
        }
        Ok(all)
    }

    fn clause(&mut self) -> Result<Clause, String> {
        if self.take("(") {
            self.depth += 1;
            if self.depth > Self::MAX_DEPTH {
                return Err("there are too many parentheses".into());
            }
            let condition = self.condition()?;
            self.depth -= 1;
            return if self.take(")") {
                Ok(Clause::Nested(condition))
            } else {
                Err("a parenthesis is not closed".into())
            };
        }
        let begin = self.tokens;
        let left = self.value()?;
        let comparison = self.comparison()?;
        let right = self.value()?;
        let text = self.since(begin);
        let one = |factors: &[Side]| factors.iter().find_map(Side::measure);
        let (of_left, of_right) = (one(&left), one(&right));
        let settle = |factors: Vec<Side>, other: Option<Measure>| -> Result<Vec<Factor>, String> {
            factors.into_iter().map(|factor| factor.settle(other)).collect()
        };
        let (left, right) = (settle(left, of_right)?, settle(right, of_left)?);
        Ok(Clause::Compare { left, comparison, right, text })
    }

    fn since(&self, begin: &[&str]) -> String {
        begin[..begin.len() - self.tokens.len()].join(" ")
    }

    fn comparison(&mut self) -> Result<Comparison, String> {
        let known = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ];
        let found = known.into_iter().find(|(sign, _)| self.take(sign));
        let there = self.tokens.first().copied().unwrap_or("its end");
        found.map(|(_, c)| c).ok_or_else(|| format!("a comparison is missing before {there:?}"))
    }

    fn value(&mut self) -> Result<Vec<Side>, String> {
        let mut value = vec![self.factor()?];
        while self.take("×") || self.take("*") {
            value.push(self.factor()?);
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<Side, String> {
        let (token, rest) = self.tokens.split_first().ok_or("it ends too early")?;
        self.tokens = rest;
        if token.starts_with(|c: char| c.is_ascii_digit()) {
            return number(token).map(Side::Number);
        }
        match token.split_once('.') {
            None if *token == "before" => Ok(Side::SameBefore),
            Some(("before", name)) => measure(name).map(Side::Before),
            _ => measure(token).map(Side::Now),
        }
    }
}

/// A factor, before it is known which measure `before` refers to.
#[derive(Clone, Copy)]
enum Side {
    Number(f64),
    Now(Measure),
    Before(Measure),
    SameBefore,
}

impl Side {
    fn measure(&self) -> Option<Measure> {
        match self {
            Side::Now(measure) => Some(*measure),
            _ => None,
        }
    }

    fn settle(self, other: Option<Measure>) -> Result<Factor, String> {
        match (self, other) {
            (Side::Number(number), _) => Ok(Factor::Number(number)),
            (Side::Now(measure), _) => Ok(Factor::Now(measure)),
            (Side::Before(measure), _) | (Side::SameBefore, Some(measure)) => {
                Ok(Factor::Before(measure))
            }
            (Side::SameBefore, None) => {
                Err("`before` needs a measure to be compared with; write e.g. before.p99".into())
            }
        }
    }
}

fn measure(name: &str) -> Result<Measure, String> {
    let found = MEASURES.iter().find(|(known, _)| *known == name).map(|(_, measure)| *measure);
    let known = || MEASURES.map(|(name, _)| name).join(", ");
    found.ok_or_else(|| format!("there is no measure {name:?}; there are: {}", known()))
}

fn number(token: &str) -> Result<f64, String> {
    let end = token.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(token.len());
    let (digits, unit) = token.split_at(end);
    let scale = match unit {
        "" | "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(format!("{unit:?} is not a unit; there are: ns, us, ms, s")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("{token:?} is not a number"))?;
    Ok(number * scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEFORE: Measured = Measured {
        calls: 1_000,
        errors: 1,
        seconds: 2.0,
        mean: 80.0,
        p50: 70,
        p90: 90,
        p99: 100,
        max: 5_000,
    };

    fn violation(text: &str, after: Measured) -> Option<String> {
        let condition: Condition = text.parse().expect("it is a condition");
        assert_eq!(condition.to_string(), text.trim());
        condition.violation(&BEFORE, &after)
    }

    #[test]
    fn what_holds_and_what_does_not() {
        let slow = Measured { p99: 130, errors: 0, ..BEFORE };
        for text in [
            "errors == 0",
            "p99 <= 1.3 × before",
            "p99 < 1.4 * before.p99",
            "before < p99",
            "max < 6us && mean < 1ms",
            "errors > 3 || rate >= 500",
            "(errors > 3 || rate == 500) && calls != 0",
            " p50 * 2 == 140ns ",
        ] {
            assert_eq!(violation(text, slow), None, "{text}");
        }
        let said = violation("errors == 0 && p99 < 1.2 × before", slow).expect("it is slow");
        assert_eq!(said, "p99 < 1.2 × before does not hold: 130 and 120");
        let said = violation("errors > 0 || (rate > 1000 && calls > 0)", slow).expect("neither");
        assert_eq!(
            said,
            "errors > 0 does not hold: 0 and 0, and rate > 1000 does not hold: 500 and 1000"
        );
    }

    /// A missing measurement proves nothing against the new implementation.
    #[test]
    fn an_object_that_nobody_calls_keeps_to_its_condition() {
        let idle = Measured { seconds: 2.0, ..Measured::default() };
        let documented = "errors == 0 && p99 < 1.2 × before";
        let (holds, condition) = (None, |text: &str| text.parse::<Condition>().expect("it is one"));
        assert_eq!(condition(documented).violation(&idle, &idle), holds);
        assert_eq!(
            condition(documented).violation(&idle, &BEFORE),
            violation("errors == 0", BEFORE)
        );
        assert_eq!(violation("p99 < 10 && rate >= 0 && errors == 0", idle), holds);
        assert_eq!(condition("rate > 0.9 × before").violation(&idle, &BEFORE), holds);
        assert!(violation("rate > 0.9 × before", idle).is_some(), "it was called before");
        assert!(violation("calls > 0", idle).is_some());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, says) in [
            ("", "it ends too early"),
            ("errors", "a comparison is missing before \"its end\""),
            ("errors == ", "it ends too early"),
            ("p98 < 3", "there is no measure \"p98\"; there are: calls, errors"),
            ("p99 < before.p98", "there is no measure \"p98\""),
            ("3 < before", "`before` needs a measure"),
            ("p99 < 3 h", "unexpected \"h\""),
            ("p99 < 3h", "\"h\" is not a unit"),
            ("p99 < 3.1.4", "\"3.1.4\" is not a number"),
            ("(p99 < 3", "a parenthesis is not closed"),
            ("p99 < 3 & calls > 1", "unexpected '&'"),
        ] {
            let error = text.parse::<Condition>().expect_err(text);
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
        let deep = "(".repeat(1_000) + "p99 < 1";
        assert!(deep.parse::<Condition>().is_err());
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_is_a_panic(text in "[a-z0-9.<>=&|×*() ]{0,40}") {
            if let Ok(condition) = text.parse::<Condition>() {
                let _ = condition.violation(&BEFORE, &BEFORE);
            }
        }
    }
}
