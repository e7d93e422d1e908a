//! Why a probe or a script was not understood, and where.

use std::ops::Range;

/// Why a specification was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse the probe{}: {what}; write e.g. uprobe:redis-server:lookupKey {{ count }}", named(.text))]
pub struct NotUnderstood {
    pub(crate) what: String,
    text: String,
    /// The bytes of the text that are wrong, if they are known.
    at: Option<Range<usize>>,
}

impl NotUnderstood {
    pub(crate) fn new(text: &str, what: String) -> Self {
        Self { what, text: text.to_owned(), at: None }
    }

    /// Returns the error that some bytes of a text are wrong.
    pub(crate) fn at(text: &str, at: Range<usize>, what: String) -> Self {
        Self { what, text: text.to_owned(), at: Some(at) }
    }

    /// Returns the line of the probe that the error quotes, and a line with a mark below it; `None`
    /// if it quotes nothing that is in the probe.
    pub fn mark(&self) -> Option<[String; 2]> {
        let Self { what, text, at } = self;
        let found = || {
            let quoted = what.split('`').nth(1).filter(|quoted| !quoted.is_empty())?;
            text.find(quoted).map(|at| at..at + quoted.len())
        };
        let Range { start: at, end } = at.clone().or_else(found)?;
        let quoted = text.get(at..end)?;
        let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = text[begin..].lines().next().unwrap_or_default().replace('\t', " ");
        let (before, length) = (text[begin..at].chars().count(), quoted.chars().count());
        Some([line, format!("{}{}", " ".repeat(before), "~".repeat(length))])
    }
}

/// Names a probe by its text, if that is a line.
fn named(text: &str) -> String {
    match text.trim() {
        text if text.contains('\n') => String::new(),
        text => format!(" `{text}`"),
    }
}
