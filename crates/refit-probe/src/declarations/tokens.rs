//! Divides declarations into words, numbers and signs.

use std::ops::Range;

/// The part of declarations that is wrong, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The bytes of the part.
    pub(crate) at: Range<usize>,
    /// The reason.
    pub(crate) what: String,
}

/// A word, a number or a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) text: &'t str,
    pub(super) at: usize,
}

impl Token<'_> {
    /// Returns the error that this is wrong.
    pub(super) fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { at: self.at..self.at + self.text.len(), what: what.into() }
    }

    /// Whether it is a name, or a word of the language.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_')
    }
}

/// A text of which tokens are taken from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns where the next token begins.
    pub(super) fn begin(&self) -> usize {
        self.at + (self.rest().len() - skip(self.rest()).len())
    }

    /// Returns what follows the last token.
    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns the next token without taking it.
    pub(super) fn peek(&self) -> Option<Token<'t>> {
        let rest = skip(self.rest());
        let first = rest.chars().next()?;
        let named = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        let length = match first {
            sign if named(sign) => rest.find(|sign| !named(sign)).unwrap_or(rest.len()),
            '<' if rest.starts_with("<<") => 2,
            '>' if rest.starts_with(">>") => 2,
            sign => sign.len_utf8(),
        };
        Some(Token { text: &rest[..length], at: self.begin() })
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Option<Token<'t>> {
        let token = self.peek()?;
        self.at = token.at + token.text.len();
        Some(token)
    }

    /// Returns the tokens up to the end of the line, which a `\` before it does not end.
    pub(super) fn line(&self) -> Self {
        let from = self.begin();
        let ends = self.text[from..].match_indices('\n').map(|(at, _)| from + at);
        let mut ends = ends.filter(|&at| !self.text[..at].ends_with('\\'));
        Self { text: &self.text[..ends.next().unwrap_or(self.text.len())], at: self.at }
    }

    /// Takes all tokens of a line.
    pub(super) fn pass(&mut self, line: Self) {
        self.at = line.text.len();
    }

    /// Whether this follows the last token without a space.
    pub(super) fn touches(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    /// Takes everything in brackets that open here, and returns it without them.
    ///
    /// # Errors
    /// There are none.
    pub(super) fn bracketed(&mut self) -> Result<&'t str, Wrong> {
        self.expect("(")?;
        let begin = self.at;
        self.close()?;
        Ok(&self.text[begin..self.at - 1])
    }

    /// Whether the next token is this one.
    pub(super) fn sees(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| token.text == text)
    }

    /// Takes the next token if it is this one.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let there = self.sees(text);
        if there {
            self.take();
        }
        there
    }

    /// Takes the next token, which has to be this one.
    ///
    /// # Errors
    /// It is another one.
    pub(super) fn expect(&mut self, text: &str) -> Result<(), Wrong> {
        match self.peek() {
            _ if self.eat(text) => Ok(()),
            Some(token) => Err(token.wrong(format!("`{}` where `{text}` has to be", token.text))),
            None => Err(self.ends(&format!("`{text}`"))),
        }
    }

    /// Takes a name.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn name(&mut self, what: &str) -> Result<Token<'t>, Wrong> {
        match self.peek() {
            Some(token) if token.is_word() => {
                self.take();
                Ok(token)
            }
            Some(token) => Err(token.wrong(format!("`{}` where {what} has to be", token.text))),
            None => Err(self.ends(what)),
        }
    }

    /// Returns the error that the text ends where something has to be.
    pub(super) fn ends(&self, what: &str) -> Wrong {
        let end = self.text.trim_end().len();
        Wrong { at: end.saturating_sub(1)..end, what: format!("no {what} at the end") }
    }

    /// Takes everything up to the bracket that closes one that was taken.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn close(&mut self) -> Result<(), Wrong> {
        let mut depth = 1_usize;
        while let Some(token) = self.take() {
            match token.text {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.ends("`)`"))
    }
}

/// Returns what follows spaces and comments.
fn skip(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        // A line that goes on.
        if let Some(behind) = text.strip_prefix("\\\n") {
            text = behind;
            continue;
        }
        let behind = if text.starts_with("//") {
            text.find('\n').unwrap_or(text.len())
        } else if text.starts_with("/*") {
            text.find("*/").map_or(text.len(), |at| at + 2)
        } else {
            return text;
        };
        text = &text[behind..];
    }
}
