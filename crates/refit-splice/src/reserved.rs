//! Bytes of the program that are already in use by a plan.

use std::collections::BTreeMap;

/// Bytes of the program that change, or whose instructions run elsewhere, as a map from the
/// beginning of a range to its end.
#[derive(Debug, Default)]
pub(crate) struct ReservedBytes(BTreeMap<u64, u64>);

impl ReservedBytes {
    pub(crate) fn take(&mut self, begin: u64, length: usize) {
        self.0.insert(begin, begin + length as u64);
    }

    /// Releases the bytes that were taken from `begin` on.
    pub(crate) fn give_back(&mut self, begin: u64) {
        self.0.remove(&begin);
    }

    pub(crate) fn is_free(&self, begin: u64, length: usize) -> bool {
        let before = self.0.range(..begin + length as u64).next_back();
        before.is_none_or(|(_, &end)| end <= begin)
    }
}
