//! Memory of the patch area in which snippets keep values by key: maps that all processors share.
//!
//! A map begins with two words, the first of which counts the values for which there was no room.
//! Then follow a byte for each entry, the lock of the keys whose search begins there, and the
//! entries, of two words:
//!
//! | word | what |
//! |---|---|
//! | 0 | the key, other than 0; 0: free |
//! | 1 | the value; 0: none |
//!
//! So a key has the value 0 until another value is stored, and storing 0 deletes it.
//! `snippet::keep` has the code, and says why several threads may run it.

/// Number of entries over which keys are spread: a power of two. As many as a search probes follow
/// them.
pub(crate) const ENTRIES: u32 = 1 << 12;
/// Number of entries that a search probes.
pub(crate) const PROBES: u32 = 16;
/// Bytes of an entry.
pub(crate) const ENTRY: u32 = 16;
/// Bytes before the first lock, and before the first entry.
pub(crate) const LOCKS: u32 = 16;
pub(crate) const HEADER: u32 = LOCKS + ENTRIES;
/// Bytes of a map.
pub(crate) const MAP: u64 = (HEADER + (ENTRIES + PROBES) * ENTRY) as u64;
/// The alignment of entries, which change as a whole.
pub(crate) const ALIGNMENT: u64 = 16;

/// The values of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptValues {
    /// Keys and values, in no particular order. A key is a value, or the number of several items
    /// ([`Installed::tuple`](crate::Installed::tuple)), or 0 in a map without keys.
    pub values: Vec<(u64, i64)>,
    /// Number of values for which there was no room.
    pub lost: u64,
}

/// Returns the values in the words of a map that were read twice: entries whose key changed in
/// between are left out, since their words may not belong together.
pub(crate) fn values(first: &[u64], second: &[u64], tuples: bool) -> KeptValues {
    let (Some((header, first)), Some((_, second))) = (divide(first), divide(second)) else {
        return KeptValues::default();
    };
    let whole = first.iter().zip(second).filter(|([key, _], [again, _])| key == again);
    let values = whole.filter(|([key, value], _)| *key != 0 && *value != 0);
    let values =
        values.map(|(&[key, value], _)| (if tuples { key } else { key - 1 }, value.cast_signed()));
    KeptValues { values: values.collect(), lost: header[0] }
}

/// Divides the words of a map into its header and its entries.
fn divide(words: &[u64]) -> Option<(&[u64], &[[u64; 2]])> {
    let (header, entries) = words.split_at_checked(HEADER as usize / 8)?;
    Some((header, entries.as_chunks().0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_change_while_they_are_read_are_left_out() {
        let with_header = |entries: &[u64]| {
            let mut words = vec![0; HEADER as usize / 8];
            words[0] = 3;
            words.extend(entries);
            words
        };
        let first = with_header(&[8, 70, 0, 0, 5, 0, 9, 90]);
        let second = with_header(&[8, 71, 2, 1, 5, 0, 10, 91]);
        let read = values(&first, &second, false);
        assert_eq!(read, KeptValues { values: vec![(7, 70)], lost: 3 });
        assert_eq!(values(&first, &first, true).values, [(8, 70), (9, 90)]);
        assert_eq!(values(&[], &[], false), KeptValues::default());
        assert_eq!(MAP % ALIGNMENT, 0);
    }
}
