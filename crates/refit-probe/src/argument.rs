//! Parses the arguments of `printf` and the keys of maps: values, texts, and facts about the place
//! and the moment.
//!
//! ```text
//! argument := argument operator argument | '(' argument ')'
//!           | value | 'str' '(' value [',' N] ')' | 'usym' '(' value ')' | 'ustack' ['(' [N] ')']
//!           | 'comm' | 'func' | 'probe' | 'nsecs' | 'elapsed' | '"' text '"' | number
//!           | 'strftime' '(' '"' format '"' ',' 'nsecs' ')'
//! ```

use std::fmt;

use refit_splice::Item;

use crate::arithmetic::{self, Operator};
use crate::operand::{Operand, number};
use crate::quotes::Quotes;

/// An argument of a message, or a part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A value, or a stack.
    Value(Operand),
    /// The text at the address that is the value, of at most this many bytes.
    Text(Operand, u8),
    /// The name of the thread.
    ThreadName,
    /// The name of the function at the place.
    Function,
    /// The place, as a probe names it.
    Probe,
    /// The function at the address that is the value.
    Symbol(Operand),
    /// The time, in nanoseconds since the system was started.
    Time,
    /// The time in nanoseconds since the probes were installed.
    Elapsed,
    /// The time as text, in this format of `strftime`.
    Clock(String),
    /// A text that does not change.
    Quoted(String),
    /// A number that does not change.
    Number(i64),
    /// A number that is computed of two others.
    Computed(Box<Self>, Operator, Box<Self>),
}

/// Maximum number of bytes that snippets gather on the stack: a message, or a key.
pub(crate) const MOST_GATHERED: usize = 512;
/// Bytes of a text, unless said otherwise, and the most.
const TEXT: u8 = 64;
const MOST_TEXT: u8 = 200;

impl Argument {
    /// Parses an argument of a message.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some((left, operator, right)) = arithmetic::divide(text) {
            let operands = [Self::parse(left)?, Self::parse(right)?];
            if let Some(wrong) = operands.iter().find(|one| !one.is_number()) {
                return Err(format!("`{wrong}` is no number, in `{text}`"));
            }
            let [left, right] = operands.map(Box::new);
            return Ok(Self::Computed(left, operator, right));
        }
        match text {
            "comm" => return Ok(Self::ThreadName),
            "func" => return Ok(Self::Function),
            "probe" => return Ok(Self::Probe),
            "nsecs" => return Ok(Self::Time),
            "elapsed" => return Ok(Self::Elapsed),
            _ => {}
        }
        if let Some(inner) = call(text, "str") {
            return string(text, inner);
        }
        if let Some(inner) = call(text, "usym") {
            return Operand::parse(inner).map(Self::Symbol);
        }
        if let Some(inner) = call(text, "strftime") {
            let parts: Vec<&str> = split(inner).map(str::trim).collect();
            return match parts[..] {
                [format, "nsecs"] => Self::clock(format),
                _ => Err(format!("`{text}` is no time (write e.g. strftime(\"%H:%M:%S\", nsecs))")),
            };
        }
        if let Some(inner) = quoted(text) {
            return unescape(inner).map(Self::Quoted);
        }
        if let Some(number) = number(text) {
            return Ok(Self::Number(number));
        }
        let whole = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        if let Some(Ok(computed)) = whole.map(Self::parse) {
            return Ok(computed);
        }
        let operand = Operand::parse_key(text);
        operand.map(Self::Value).map_err(|what| match what.strip_suffix(')') {
            Some(known) if what.starts_with("unknown value") => {
                format!("{known}, ustack, str(…), usym(…), comm, func, probe, nsecs, elapsed)")
            }
            _ => what,
        })
    }

    /// Parses the format of a time, with its quotes.
    ///
    /// # Errors
    /// The conversion that is not known.
    pub(crate) fn clock(text: &str) -> Result<Self, String> {
        let format = quoted(text.trim()).ok_or_else(|| format!("`{text}` is no text"))?;
        // bpftrace writes microseconds.
        let parts: Vec<_> =
            unescape(format)?.split("%%").map(|part| part.replace("%f", "%6f")).collect();
        let format = parts.join("%%");
        let epoch = jiff::Timestamp::UNIX_EPOCH.to_zoned(jiff::tz::TimeZone::UTC);
        match jiff::fmt::strtime::format(&format, &epoch) {
            Ok(_) => Ok(Self::Clock(format)),
            Err(error) => Err(format!("`{}` is no format of a time: {error}", text.trim())),
        }
    }

    /// Parses a part of a key: an argument that is the same at several times.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn parse_key(text: &str) -> Result<Self, String> {
        match Self::parse(text)? {
            Self::Time | Self::Elapsed | Self::Clock(_) => {
                let text = text.trim();
                Err(format!("`{text}` is another at each time, so it cannot be a key"))
            }
            Self::Computed(..) => {
                let text = text.trim();
                Err(format!("`{text}` is computed when it is printed, so it cannot be a key"))
            }
            argument => Ok(argument),
        }
    }

    /// Returns the values that it reads.
    pub fn operands(&self) -> Vec<&Operand> {
        match self {
            Self::Value(operand) | Self::Text(operand, _) | Self::Symbol(operand) => vec![operand],
            Self::Computed(left, _, right) => [left.operands(), right.operands()].concat(),
            _ => Vec::new(),
        }
    }

    /// Whether it is a stack.
    pub fn is_stack(&self) -> bool {
        matches!(self, Self::Value(operand) if operand.is_stack())
    }

    /// Whether it is the name of a function at an address.
    pub(crate) fn is_symbol(&self) -> bool {
        matches!(self, Self::Symbol(_))
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        match self {
            Self::Value(operand) => !operand.is_stack(),
            Self::Time | Self::Elapsed | Self::Number(_) | Self::Computed(..) => true,
            _ => false,
        }
    }

    /// Returns what snippets gather for it: nothing if it is known without them.
    pub fn items(&self) -> Vec<Item> {
        match self {
            Self::Value(operand) | Self::Symbol(operand) => vec![Item::Value(operand.value)],
            Self::Text(operand, most) => {
                let words = most / 8 + 1;
                vec![Item::Text { pointer: operand.value, words: words.max(2) }]
            }
            Self::ThreadName => vec![Item::ThreadName],
            Self::Computed(left, _, right) => [left.items(), right.items()].concat(),
            Self::Function
            | Self::Probe
            | Self::Time
            | Self::Elapsed
            | Self::Clock(_)
            | Self::Quoted(_)
            | Self::Number(_) => Vec::new(),
        }
    }
}

/// Returns the number of bytes that snippets gather on the stack for these together.
pub(crate) fn gathered(arguments: &[Argument]) -> usize {
    arguments.iter().flat_map(Argument::items).map(|item| item.words() * 8).sum()
}

/// Returns the text between quotes.
pub(crate) fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// Splits at commas and semicolons outside of brackets and quotes.
pub(crate) fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut quotes) = (0_usize, Quotes::default());
    text.split(move |sign| {
        quotes.pass(sign);
        match sign {
            _ if quotes.within => {}
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && !quotes.within && matches!(sign, ',' | ';')
    })
}

/// Returns the text between the brackets of a call of `name`.
pub(crate) fn call<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')')
}

/// Parses the arguments of `str`.
fn string(text: &str, inner: &str) -> Result<Argument, String> {
    let (pointer, most) = match inner.rsplit_once(',') {
        None => (inner, TEXT),
        Some((pointer, most)) => {
            let most = number(most).and_then(|most| u8::try_from(most).ok());
            let most = most.filter(|most| (1..=MOST_TEXT).contains(most));
            let range = || format!("`{text}` has no length from 1 to {MOST_TEXT}");
            (pointer, most.ok_or_else(range)?)
        }
    };
    Operand::parse(pointer).map(|pointer| Argument::Text(pointer, most))
}

/// Replaces the escapes of C that texts of scripts have.
///
/// # Errors
/// The escape that is not known.
pub(crate) fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            plain.push(sign);
            continue;
        }
        plain.push(match signs.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('\\') => '\\',
            Some('"') => '"',
            Some(other) => {
                return Err(format!("unknown escape `\\{other}` (known: \\n \\t \\r \\\\ \\\")"));
            }
            None => return Err("the text ends with a `\\`".to_owned()),
        });
    }
    Ok(plain)
}

impl fmt::Display for Argument {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(operand) => operand.fmt(to),
            Self::Text(operand, TEXT) => write!(to, "str({operand})"),
            Self::Text(operand, most) => write!(to, "str({operand}, {most})"),
            Self::ThreadName => to.write_str("comm"),
            Self::Function => to.write_str("func"),
            Self::Probe => to.write_str("probe"),
            Self::Symbol(operand) => write!(to, "usym({operand})"),
            Self::Time => to.write_str("nsecs"),
            Self::Elapsed => to.write_str("elapsed"),
            Self::Clock(format) => write!(to, "strftime({format:?}, nsecs)"),
            Self::Quoted(text) => write!(to, "{text:?}"),
            Self::Number(number) => number.fmt(to),
            Self::Computed(left, operator, right) => {
                write!(to, "({left} {} {right})", operator.sign())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_understood() {
        for (text, said, words) in [
            ("arg0", "rdi", 1),
            ("str(arg0)", "str(rdi)", 9),
            ("str( *(arg0 + 8) , 32 )", "str(*(rdi + 8), 32)", 5),
            ("str(retval, 1)", "str(retval, 1)", 2),
            ("str(arg1,200)", "str(rsi, 200)", 26),
            ("comm", "comm", 2),
            ("func", "func", 0),
            ("probe", "probe", 0),
            ("usym(arg3)", "usym(rcx)", 1),
            ("ustack(3)", "ustack(3)", 1),
            ("nsecs", "nsecs", 0),
            ("\"a\\tb\"", "\"a\\tb\"", 0),
            ("-16", "-16", 0),
            ("elapsed / 1000 % 60", "((elapsed / 1000) % 60)", 0),
            ("(arg1 + retval) * (i32)arg2", "((rsi + retval) * (i32)rdx)", 3),
            ("cpu", "cpu", 1),
            ("strftime(\"%H:%M\", nsecs)", "strftime(\"%H:%M\", nsecs)", 0),
            ("strftime(\"%S.%f%%f\",nsecs)", "strftime(\"%S.%6f%%f\", nsecs)", 0),
        ] {
            let argument = Argument::parse(text).unwrap_or_else(|what| panic!("{text}: {what}"));
            assert_eq!(argument.to_string(), said);
            let gathered: usize = argument.items().iter().map(Item::words).sum();
            assert_eq!(gathered, words, "{text}");
        }
    }

    #[test]
    fn what_is_no_argument_is_told() {
        for (text, what) in [
            ("str(arg0, 0)", "no length from 1 to 200"),
            ("str(arg0, 201)", "no length"),
            ("str(arg9)", "unknown value `arg9`"),
            ("str(ustack)", "can only be"),
            ("strs", "ustack, str(…)"),
            ("arg0 + comm", "`comm` is no number, in `arg0 + comm`"),
            ("arg0 + argx", "unknown value `argx`"),
            ("\"\\q\"", "unknown escape `\\q`"),
            ("strftime(\"%H\")", "is no time"),
            ("strftime(\"%!\", nsecs)", "`\"%!\"` is no format"),
        ] {
            let error = Argument::parse(text).expect_err(text);
            assert!(error.contains(what), "{text}: {error}");
        }
        let error = Argument::parse_key("arg0 >> 12").expect_err("no key");
        assert!(error.contains("computed when it is printed"), "{error}");
        let error = Argument::parse_key(" nsecs").expect_err("no key");
        assert!(error.starts_with("`nsecs` is another"), "{error}");
    }
}
