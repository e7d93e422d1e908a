//! Formats messages: `printf("%-6d %s\n", pid, str(arg0))`.
//!
//! ```text
//! conversion := '%' ['-' | '0' | '+' | ' ' | '#']* [width] ['.' precision] ['h' | 'l' | 'z']* kind
//! kind       := 'd' 'i' (signed) | 'u' | 'x' | 'X' | 'o' | 'p' | 'c' | 's' | '%'
//! ```
//!
//! Numbers have 64 bits, whatever the modifier says.

use std::fmt;

use refit_sys::printable;

use crate::argument::{Argument, MOST_GATHERED, Member, TEXT, Want, gathered};
use crate::datum::Datum;
use crate::expression::{quoted, split, unescape};
use crate::lowering::Lowering;

/// A message, before its arguments are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The text between the brackets.
    source: String,
    pieces: Vec<Piece>,
    arguments: Vec<Argument>,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The next argument.
    Argument(Conversion),
}

/// The way in which an argument is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    prefix: bool,
    width: usize,
    precision: Option<usize>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Signed,
    Unsigned,
    Hex,
    UpperHex,
    Octal,
    Character,
    Text,
}

/// The widest column.
const MOST_WIDTH: usize = 1000;

impl Format {
    /// Parses what is between the brackets of `printf`.
    ///
    /// # Errors
    /// The part that is not understood, an argument that does not fit its conversion or cannot be
    /// computed, or too many bytes of arguments.
    pub(crate) fn parse(source: &str, lowering: &mut Lowering) -> Result<Self, String> {
        let mut parts = split(source);
        let first = parts.next().unwrap_or_default().trim();
        let quoted =
            quoted(first).ok_or("printf needs a text (write e.g. printf(\"%d\\n\", arg0))")?;
        let pieces = pieces(&unescape(quoted)?)?;
        let sources: Vec<&str> = parts.map(str::trim).collect();
        let parsed = sources.iter().map(|source| Argument::parse(source));
        let arguments = parsed.collect::<Result<Vec<_>, _>>()?;
        let conversions: Vec<_> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Argument(conversion) => Some(conversion),
                Piece::Text(_) => None,
            })
            .collect();
        if conversions.len() != arguments.len() {
            let (asked, given) = (conversions.len(), arguments.len());
            return Err(format!("printf has {asked} conversions (`%`) and {given} values"));
        }
        let named = arguments.into_iter().zip(&conversions).map(|(one, conversion)| match one {
            // A text that is a member needs no `str`.
            Argument::Member(member) if conversion.kind == Kind::Text => {
                let member = Argument::Member(Member { want: Want::Text, ..member });
                Argument::Text(Box::new(member), TEXT)
            }
            one => lowering.named(one),
        });
        let named: Vec<_> = named.collect();
        let both = sources.into_iter().zip(&named);
        for (conversion, (source, argument)) in conversions.into_iter().zip(both) {
            let text = conversion.kind == Kind::Text;
            if text && argument.is_number() {
                return Err(format!(
                    "`{source}` is a number, which %s does not print (write %d or %x, or str({source}) for the text at this address)"
                ));
            }
            if !text && !argument.is_number() {
                return Err(format!("`{source}` is a text, which only %s prints"));
            }
        }
        let arguments = named.into_iter().map(|argument| lowering.printed(argument));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        match gathered(&arguments) {
            bytes if bytes > MOST_GATHERED => {
                Err(format!("printf with {bytes} bytes of values; it may have {MOST_GATHERED}"))
            }
            _ => Ok(Self { source: source.trim().to_owned(), pieces, arguments }),
        }
    }

    /// Returns the message that `time` writes: the time in a format of `strftime`.
    ///
    /// # Errors
    /// The part of the format that is not understood.
    pub(crate) fn time(source: &str) -> Result<Self, String> {
        let source = if source.trim().is_empty() { "\"%H:%M:%S\\n\"" } else { source.trim() };
        let pieces =
            vec![Piece::Argument(Conversion { kind: Kind::Text, ..Conversion::default() })];
        let arguments = vec![Argument::clock(source)?];
        Ok(Self { source: format!("\"%s\", {}", arguments[0]), pieces, arguments })
    }

    /// Returns its arguments.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Writes the message with these arguments.
    pub fn render(&self, arguments: &[Datum]) -> String {
        let (mut text, mut arguments) = (String::new(), arguments.iter());
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Argument(conversion) => {
                    let shown = arguments.next().map(|argument| conversion.show(argument));
                    text.push_str(&shown.unwrap_or_default());
                }
            }
        }
        text
    }
}

impl Conversion {
    fn show(&self, argument: &Datum) -> String {
        let (sign, digits) = match (argument, self.kind) {
            (Datum::Text(text), _) => {
                let most = self.precision.unwrap_or(usize::MAX);
                ("", text.chars().take(most).collect())
            }
            (Datum::NoStack, _) => ("", "\n    [no room for the stack]\n".to_owned()),
            (Datum::Stack(frames), _) => {
                let lines = frames
                    .iter()
                    .map(|frame| format!("\n    {}", printable::line(&frame.to_string())));
                ("", lines.chain(["\n".to_owned()]).collect())
            }
            (Datum::Number(number), Kind::Signed | Kind::Text) => {
                let number = number.cast_signed();
                let plus = if self.plus { "+" } else { "" };
                (if number < 0 { "-" } else { plus }, number.unsigned_abs().to_string())
            }
            (Datum::Number(number), Kind::Unsigned) => ("", number.to_string()),
            (Datum::Number(number), Kind::Hex) => (self.marked("0x"), format!("{number:x}")),
            (Datum::Number(number), Kind::UpperHex) => (self.marked("0X"), format!("{number:X}")),
            (Datum::Number(number), Kind::Octal) => (self.marked("0"), format!("{number:o}")),
            (Datum::Number(number), Kind::Character) => {
                let sign = char::from(*number as u8);
                ("", sign.to_string())
            }
        };
        let length = sign.chars().count() + digits.chars().count();
        let fill = self.width.saturating_sub(length);
        let number = matches!(argument, Datum::Number(_)) && self.kind != Kind::Character;
        match (self.left, self.zeros && number) {
            (true, _) => format!("{sign}{digits}{}", " ".repeat(fill)),
            (false, true) => format!("{sign}{}{digits}", "0".repeat(fill)),
            (false, false) => format!("{}{sign}{digits}", " ".repeat(fill)),
        }
    }

    fn marked(&self, prefix: &'static str) -> &'static str {
        if self.prefix { prefix } else { "" }
    }
}

/// Divides the text of a message at its conversions.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut plain) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('%') {
        plain.push_str(before);
        if let Some(behind) = behind.strip_prefix('%') {
            plain.push('%');
            rest = behind;
            continue;
        }
        let (conversion, length) = conversion(behind).ok_or_else(|| {
            let shown: String = behind.chars().take(8).collect();
            format!("unknown conversion `%{shown}` (known: %d %u %x %X %o %p %c %s %%)")
        })?;
        pieces.extend((!plain.is_empty()).then(|| Piece::Text(std::mem::take(&mut plain))));
        pieces.push(Piece::Argument(conversion));
        rest = &behind[length..];
    }
    plain.push_str(rest);
    pieces.extend((!plain.is_empty()).then_some(Piece::Text(plain)));
    Ok(pieces)
}

/// Parses a conversion after its `%`; also returns its length.
fn conversion(text: &str) -> Option<(Conversion, usize)> {
    let mut found = Conversion::default();
    let mut rest = text;
    loop {
        match rest.chars().next()? {
            '-' => found.left = true,
            '0' => found.zeros = true,
            '+' => found.plus = true,
            '#' => found.prefix = true,
            ' ' => {}
            _ => break,
        }
        rest = &rest[1..];
    }
    let width = digits(&mut rest);
    found.width = if width.is_empty() { 0 } else { width.parse().ok()? };
    if let Some(behind) = rest.strip_prefix('.') {
        rest = behind;
        let precision = digits(&mut rest);
        found.precision = Some(if precision.is_empty() { 0 } else { precision.parse().ok()? });
    }
    let rest = rest.trim_start_matches(['h', 'l', 'z', 'j']);
    found.kind = match rest.chars().next()? {
        'd' | 'i' => Kind::Signed,
        'u' => Kind::Unsigned,
        'x' => Kind::Hex,
        'X' => Kind::UpperHex,
        'o' => Kind::Octal,
        'c' => Kind::Character,
        's' => Kind::Text,
        'p' => {
            found.prefix = true;
            Kind::Hex
        }
        _ => return None,
    };
    (found.width <= MOST_WIDTH).then_some((found, text.len() - rest.len() + 1))
}

/// Takes the digits at the beginning.
fn digits<'t>(rest: &mut &'t str) -> &'t str {
    let end = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, behind) = rest.split_at(end);
    *rest = behind;
    digits
}

impl fmt::Display for Format {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "printf({})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: &str) -> Result<Format, String> {
        Format::parse(source, &mut Lowering::new("", &Default::default()))
    }

    fn render(source: &str, data: &[Datum]) -> String {
        parse(source).unwrap_or_else(|what| panic!("{source}: {what}")).render(data)
    }

    fn number(number: i64) -> Datum {
        Datum::Number(number.cast_unsigned())
    }

    #[test]
    fn messages_are_as_those_of_c() {
        let text = |text: &str| Datum::Text(text.to_owned());
        for (source, data, shown) in [
            (r#""plain %% text\n""#, vec![], "plain % text\n"),
            (
                r#""%d|%5d|%-5d|%05d|%+d", 1, 2, 3, 4, 5"#,
                (1..6).map(number).collect(),
                "1|    2|3    |00004|+5",
            ),
            (r#""%d %lld", arg0, arg1"#, vec![number(-7), number(-8)], "-7 -8"),
            (r#""%05d", arg0"#, vec![number(-7)], "-0007"),
            (r#""%u", arg0"#, vec![number(-1)], "18446744073709551615"),
            (
                r#""%x %#lx %X %p %o", arg0, arg0, arg0, arg0, arg0"#,
                vec![number(255); 5],
                "ff 0xff FF 0xff 377",
            ),
            (r#""%c%c", arg0, 66"#, vec![number(65), number(66)], "AB"),
            (
                r#""%s|%6s|%-6s|%.2s|", str(arg0), comm, func, "x""#,
                ["ab", "cd", "ef", "ghi"].map(text).to_vec(),
                "ab|    cd|ef    |gh|",
            ),
        ] {
            assert_eq!(render(source, &data), shown, "{source}");
        }
        let format = parse(r#" "%s, {\"x\"}", str(arg0, 8) "#).expect("understood");
        assert_eq!(format.to_string(), r#"printf("%s, {\"x\"}", str(arg0, 8))"#);
    }

    #[test]
    fn what_is_wrong_with_a_message_is_told() {
        for (source, what) in [
            ("arg0", "printf needs a text"),
            (r#""%d""#, "1 conversions (`%`) and 0 values"),
            (r#""x", arg0"#, "0 conversions"),
            (r#""%s", arg0"#, "`arg0` is a number"),
            (r#""%d", str(arg0)"#, "`str(arg0)` is a text"),
            (r#""%y", arg0"#, "unknown conversion `%y`"),
            (r#""%2000d", arg0"#, "unknown conversion"),
            (r#""%""#, "unknown conversion"),
            (r#""%s%s%s", str(arg0, 200), str(arg1, 200), str(arg2, 200)"#, "624 bytes of values"),
        ] {
            let error = parse(source).expect_err(source);
            assert!(error.contains(what), "{source}: {error}");
        }
    }
}
