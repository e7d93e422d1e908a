//! Names as text that can be shown and read back, and that has no effect on a terminal.
//!
//! A file name is any sequence of bytes but `/` and NUL. Shown as it is, it could move the cursor,
//! forge a row of a table, or end a line. The functions write each unprintable byte as `\xHH`, with
//! two hexadecimal digits:
//!
//! | function | `\` becomes | for |
//! |---|---|---|
//! | [`name()`] | `\\`, so that [`bytes`] restores the exact name | names that users type again |
//! | [`line()`], [`text()`] | `\` | one line of text for people, or a part of one |

use std::borrow::Cow;

/// Returns whether a character is shown as it is: it is neither a control character nor one that
/// changes the order or the shape of the text around it.
fn shown(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

fn push_escaped(text: &mut String, bytes: &[u8]) {
    use std::fmt::Write as _;
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}"); // A string takes everything.
    }
}

fn escape(bytes: &[u8], text: &mut String, double: bool) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' if double => text.push_str("\\\\"),
                c if shown(c) => text.push(c),
                c => push_escaped(text, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_escaped(text, chunk.invalid());
    }
}

/// Escapes text that a program holds: nothing in it acts on a terminal.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    escape(bytes, &mut text, false);
    text
}

/// Returns a name as text, from which [`bytes`] recovers the name.
pub fn name(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    escape(bytes, &mut text, true);
    text
}

/// Returns the bytes of a name that [`name`] has written or a person has typed; a `\` that begins
/// no escape stands for itself.
pub fn bytes(text: &str) -> Vec<u8> {
    let from = text.as_bytes();
    let mut found = Vec::with_capacity(from.len());
    let mut at = 0;
    while let Some(&byte) = from.get(at) {
        let digits = from.get(at + 2..at + 4).and_then(|two| std::str::from_utf8(two).ok());
        let hex = digits.filter(|two| two.bytes().all(|d| d.is_ascii_hexdigit()));
        match (byte, from.get(at + 1), hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'\\', Some(b'\\'), _) => {
                found.push(b'\\');
                at += 2;
            }
            (b'\\', Some(b'x'), Some(escaped)) => {
                found.push(escaped);
                at += 4;
            }
            _ => {
                found.push(byte);
                at += 1;
            }
        }
    }
    found
}

/// Escapes a line for people: nothing in it acts on a terminal, and it stays one line.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.chars().all(shown) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    escape(text.as_bytes(), &mut escaped, false);
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_byte_by_byte_whatever_they_are() {
        let all: Vec<u8> = (0..=255).collect();
        let odd: [&[u8]; 9] = [
            b"plain",
            "größe".as_bytes(),
            b"back\\slash",
            b"\\x41",
            b"\\\\x41",
            b"a\nb\x1b[2J",
            b"\xff\xfe",
            "\u{202e}gpj".as_bytes(),
            &all,
        ];
        for bytes in odd {
            let text = name(bytes);
            assert_eq!(super::bytes(&text), bytes, "{text}");
            assert!(text.chars().all(shown), "{text}");
        }
        assert_eq!(name("größe (1)".as_bytes()), "größe (1)");
        assert_eq!(name(b"a\nb\xff\\"), "a\\x0ab\\xff\\\\");
    }

    #[test]
    fn what_a_person_types_need_not_be_escaped() {
        for (typed, meant) in [
            ("a\\b", "a\\b"),
            ("a\\", "a\\"),
            ("\\x4", "\\x4"),
            ("\\xzz", "\\xzz"),
            ("\\x+1", "\\x+1"),
            ("\\\\", "\\"),
        ] {
            assert_eq!(bytes(typed), meant.as_bytes(), "{typed}");
        }
    }

    #[test]
    fn a_line_stays_one_line_and_does_not_act_on_the_terminal() {
        assert!(matches!(line("µs – größe \\ 12"), Cow::Borrowed(_)));
        assert_eq!(
            line("a\r\nb\t\x1b]0;title\x07\u{9b}1m\u{2028}"),
            "a\\x0d\\x0ab\\x09\\x1b]0;title\\x07\\xc2\\x9b1m\\xe2\\x80\\xa8"
        );
    }
}
