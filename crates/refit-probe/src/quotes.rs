//! Tells what is within quotes and brackets.

/// Knows which signs of a text are within quotes.
#[derive(Debug, Default)]
pub(crate) struct Quotes {
    pub(crate) within: bool,
    escaped: bool,
}

impl Quotes {
    /// Passes a sign. A closing quote is not within the quotes.
    pub(crate) fn pass(&mut self, sign: char) {
        let escaped = std::mem::take(&mut self.escaped);
        match sign {
            '"' if !escaped => self.within = !self.within,
            '\\' if self.within => self.escaped = !escaped,
            _ => {}
        }
    }
}

/// Returns the signs of a text, with their places, that are outside of brackets (`(` and `[`) and
/// quotes.
pub(crate) fn outside(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut depth, mut quotes) = (0_usize, Quotes::default());
    text.char_indices().filter(move |&(_, sign)| {
        quotes.pass(sign);
        match sign {
            _ if quotes.within => {}
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && !quotes.within
    })
}

/// Returns the place of the first comma or semicolon outside; the length of the text if there is
/// none.
pub(crate) fn end(text: &str) -> usize {
    outside(text).find(|(_, sign)| matches!(sign, ',' | ';')).map_or(text.len(), |(at, _)| at)
}
