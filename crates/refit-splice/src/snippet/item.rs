//! The items of messages and of keys, and the texts among them.

use super::registers::{FETCHING, Needs, Set};
use super::value::Value;

/// An item of a message, or of a key of several items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A value, in one word.
    Value(Value),
    /// The text at an address, up to the first 0 byte, in this many words (2 to 32). The last byte
    /// says what it is ([`text`]).
    Text {
        /// The address.
        pointer: Value,
        /// Number of words.
        words: u8,
    },
    /// The name of the thread, as a text in two words.
    ThreadName,
}

/// The last byte of a text that is longer than its room, and of one whose address cannot be read:
/// then the address is the first word.
pub(super) const CUT: u8 = 1;
pub(super) const UNREADABLE: u8 = 0xff;

/// A text that a snippet has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// The bytes before the first 0 byte.
    Whole(Vec<u8>),
    /// As many bytes as there was room for; more follow.
    Cut(Vec<u8>),
    /// There is no text at this address.
    Unreadable(u64),
}

/// Returns the text in the words of an item.
pub fn text(words: &[u64]) -> Text {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    match bytes.pop() {
        Some(UNREADABLE) => Text::Unreadable(words[0]),
        Some(CUT) => Text::Cut(bytes),
        _ => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            bytes.truncate(end);
            Text::Whole(bytes)
        }
    }
}

/// Words of a thread's name: `TASK_COMM_LEN` bytes.
pub(super) const NAME_WORDS: usize = 2;

impl Item {
    /// Returns the number of its words.
    pub fn words(&self) -> usize {
        match self {
            Self::Value(_) => 1,
            Self::Text { words, .. } => usize::from(*words),
            Self::ThreadName => NAME_WORDS,
        }
    }

    /// Returns the value that it reads.
    pub(super) fn value(&self) -> Option<Value> {
        match self {
            Self::Value(value) | Self::Text { pointer: value, .. } => Some(*value),
            Self::ThreadName => None,
        }
    }

    pub(super) fn needs(&self) -> Needs {
        match self {
            Self::Value(_) => Needs { scratch: 1, fixed: Set::NONE, reads: Set::NONE, stack: true },
            Self::Text { .. } | Self::ThreadName => FETCHING,
        }
    }

    /// Returns an upper bound of the bytes of its code, besides that of its value.
    pub(super) fn most_bytes(&self) -> u64 {
        match self {
            Self::Value(_) => 16,
            Self::Text { .. } => 384,
            Self::ThreadName => 192,
        }
    }

    /// Whether finding it can fail.
    pub(super) fn fails(&self) -> bool {
        self.value().is_some_and(Value::fails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_they_are() {
        let words = |bytes: &[u8; 16]| {
            let (words, _) = bytes.as_chunks();
            words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>()
        };
        let whole = |bytes: &[u8]| Text::Whole(bytes.to_vec());
        assert_eq!(text(&words(b"abc\0\0\0\0\0\0\0\0\0\0\0\0\0")), whole(b"abc"));
        assert_eq!(text(&words(b"fifteen bytes..\0")), whole(b"fifteen bytes.."));
        assert_eq!(text(&words(b"fifteen and mor\x01")), Text::Cut(b"fifteen and mor".to_vec()));
        assert_eq!(text(&words(&[0; 16])), whole(b""));
        assert_eq!(text(&[4711, 0xff << 56]), Text::Unreadable(4711));
    }
}
