//! Tells what is within quotes.

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
