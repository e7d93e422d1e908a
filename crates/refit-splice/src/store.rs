//! Memory of the patch area in which snippets store stacks and keys, each once, under a number.
//!
//! A store has places of the same size. A place has these words:
//!
//! | word | what |
//! |---|---|
//! | 0 | the hash of the content; 0: free |
//! | 1 | 1 once the content is complete |
//! | from 2 on | the content |
//!
//! `snippet::intern` has the code that finds a place, and says why several threads may.

/// Number of places over which hashes are spread: a power of two. As many as a search probes follow
/// them.
pub(crate) const PLACES: u64 = 1 << 12;
/// Number of places that a search probes.
pub(crate) const PROBES: u32 = 64;
/// Words of a place before its content.
const HEADER: usize = 2;
/// Offsets in a place, in bytes: of the word that says that it is complete, and of its content.
pub(crate) const COMPLETE: u64 = 8;
pub(crate) const CONTENT: u64 = HEADER as u64 * 8;

/// A store, at an address of the program, or at an offset of the data of its patch area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    /// Address of its first place.
    pub(crate) at: u64,
    /// Words of a place.
    words: usize,
}

impl Store {
    /// Describes a store for contents of at most this many words.
    pub(crate) fn new(at: u64, words: usize) -> Self {
        Self { at, words: HEADER + words }
    }

    /// Returns the bytes of a place.
    pub(crate) fn place_bytes(self) -> u64 {
        self.words as u64 * 8
    }

    /// Returns the words of a place.
    pub(crate) fn place_words(self) -> usize {
        self.words
    }

    /// Returns the address after its last place.
    pub(crate) fn end(self) -> u64 {
        self.at + (PLACES + u64::from(PROBES)) * self.place_bytes()
    }

    /// Returns the address of a place by its number: its offset in bytes, plus one. `None` if no
    /// place has this number.
    pub(crate) fn place(self, number: u64) -> Option<u64> {
        let offset = number.checked_sub(1)?;
        let inside = offset.is_multiple_of(self.place_bytes()) && offset < self.end() - self.at;
        inside.then(|| self.at + offset)
    }
}

/// Returns the content of a place from its words; `None` if it is not complete.
pub(crate) fn content(place: &[u64]) -> Option<&[u64]> {
    let (header, content) = place.split_at_checked(HEADER)?;
    (header[1] != 0).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_places() {
        let store = Store::new(4096, 6);
        assert_eq!((store.place_bytes(), store.place(1)), (64, Some(4096)));
        assert_eq!(store.place(65), Some(4160));
        let places = PLACES + u64::from(PROBES);
        assert_eq!(store.place((places - 1) * 64 + 1), Some(store.end() - 64));
        for none in [0, 2, 64, places * 64 + 1, u64::MAX] {
            assert_eq!(store.place(none), None, "{none}");
        }
        assert_eq!(content(&[7, 0, 1, 2]), None);
        assert_eq!(content(&[7, 1, 1, 2]), Some(&[1, 2][..]));
        assert_eq!(content(&[7]), None);
    }
}
