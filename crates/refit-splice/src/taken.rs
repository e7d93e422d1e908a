//! Takes what snippets have counted or kept, so that they begin anew, while the program runs on.
//!
//! # Least and greatest values
//!
//! They are two cells in each lane: the number of values, and the extreme of them in an order in
//! which 0 is the first, so that a cell without a value is 0. A snippet *folds* a value, by
//! exchanging the extreme for it unless it is less, and then *counts* it. Refit exchanges the
//! extreme for 0, and if there was one, the number for 0.
//!
//! *Each value is in the extreme of exactly one interval.* A fold takes effect in one step: when it
//! finds an extreme that is not less, or exchanges the one that it has found. If refit exchanges
//! the extreme in between, the fold's exchange fails, or another thread has stored the same extreme
//! since, and the fold is right as of then. So all folds are before or after refit's exchange, and
//! what refit gets is the extreme of those since its last one.
//!
//! *Each value is in the number of exactly one interval*, since that changes by atomic additions
//! and exchanges only. It may be another interval than that of the extreme, if refit comes between
//! the two steps of the snippet, or the snippet between those of refit. An interval with an extreme
//! has at least one value: if its own is not counted yet, refit takes it in advance, and the number
//! is less than 0 until it comes. The numbers of intervals without an extreme are left for the next
//! one. The extremes of the whole range of numbers (the least for `max`, the greatest for `min`)
//! cannot be told from none.
//!
//! # Values that are kept
//!
//! Refit exchanges each entry, key and value as a whole, for the same key without a value. That is
//! what a thread does that stores 0 under the key once it has found it ([`snippet::keep`]), so what
//! is said there holds with refit as one more thread. What it gets is the last value of the key
//! before the exchange; what is added later is added to 0.
//!
//! `fold_model` and `kept_model` try all orders of the steps.
//!
//! [`snippet::keep`]: crate::snippet

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counted::Keyed;
use crate::install::Installed;
use crate::kept::{self, KeptValues};
use crate::snippet::Step;

/// Number of cells of a step that folds values.
const FOLDED: usize = 2;

impl Installed {
    /// Takes what a step without a key has folded to the least or greatest: its cells.
    ///
    /// # Errors
    /// The error of mapping the area.
    pub fn take_cells(&self, step: &Step, first: u32) -> io::Result<Vec<u64>> {
        let mut cells = vec![0; FOLDED];
        self.each_lane(first, |words| step.action.add(&mut cells, &take(words)))?;
        Ok(cells)
    }

    /// Takes what a step has folded to the least or greatest: cells by key, and those of all other
    /// keys together. With `only`, takes those of these keys.
    ///
    /// # Errors
    /// The error of mapping the area.
    pub fn take_keyed(
        &self,
        step: &Step,
        first: u32,
        only: Option<&BTreeSet<u64>>,
    ) -> io::Result<(Keyed, Vec<u64>)> {
        let count = (step.table(first).end - first) as usize;
        let (mut keys, mut others) = (Keyed::new(), vec![0; FOLDED]);
        self.each_lane(first, |words| {
            let words = words.get(..count).unwrap_or_default();
            let Some((rest, entries)) = words.split_at_checked(FOLDED) else { return };
            if only.is_none() {
                step.action.add(&mut others, &take(rest));
            }
            for entry in entries.chunks_exact(1 + FOLDED) {
                // A key that is set stays.
                let Some(key) = entry[0].load(Ordering::Relaxed).checked_sub(1) else { continue };
                if only.is_some_and(|only| !only.contains(&key)) {
                    continue;
                }
                let cells = keys.entry(key).or_insert_with(|| vec![0; FOLDED]);
                step.action.add(cells, &take(&entry[1..]));
            }
        })?;
        Ok((keys, others))
    }

    /// Takes the values of a map; `tuples` says whether its keys have several items. With `only`,
    /// takes those of these keys.
    ///
    /// # Errors
    /// The error of mapping the area.
    pub fn take_kept(
        &self,
        map: u16,
        tuples: bool,
        only: Option<&BTreeSet<u64>>,
    ) -> io::Result<KeptValues> {
        let (Some(area), Some(first)) = (self.areas.first(), self.kept) else {
            return Ok(KeptValues::default());
        };
        let window = area.window()?;
        let first = area.index(first + u64::from(map) * kept::MAP);
        let header = window.get().get(first).map_or(0, |lost| lost.load(Ordering::Relaxed));
        let mut taken = KeptValues { values: Vec::new(), lost: header };
        let entries = first + kept::HEADER as usize / 8;
        for at in (entries..first + kept::MAP as usize / 8).step_by(2) {
            let read =
                |at: usize| window.get().get(at).map_or(0, |word| word.load(Ordering::Relaxed));
            let mut entry = [read(at), read(at + 1)];
            while entry[0] != 0 && entry[1] != 0 {
                let [key, value] = entry;
                let number = if tuples { key } else { key - 1 };
                if only.is_some_and(|only| !only.contains(&number)) {
                    break;
                }
                match window.exchange_pair(at, entry, [key, 0]) {
                    Ok(()) => {
                        taken.values.push((number, value.cast_signed()));
                        break;
                    }
                    Err(there) => entry = there,
                }
            }
        }
        Ok(taken)
    }

    /// Calls `with` for the words of each lane from a cell on.
    fn each_lane(&self, first: u32, mut with: impl FnMut(&[AtomicU64])) -> io::Result<()> {
        for area in &self.areas {
            let window = area.window()?;
            for lane in 0..self.shape.all_lanes() {
                let at = area.index(lane * self.shape.stride + u64::from(first) * 8);
                with(window.get().get(at..).unwrap_or_default());
            }
        }
        Ok(())
    }
}

/// Takes the number of values and their extreme.
fn take(cells: &[AtomicU64]) -> [u64; FOLDED] {
    let [number, extreme, ..] = cells else { return [0; FOLDED] };
    match extreme.swap(0, Ordering::SeqCst) {
        0 => [0; FOLDED],
        folded => {
            let taken = number.swap(0, Ordering::SeqCst).cast_signed();
            if taken < 1 {
                // Those that refit takes in advance.
                number.fetch_add((taken - 1).cast_unsigned(), Ordering::SeqCst);
            }
            [taken.max(1).cast_unsigned(), folded]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_come_late_are_taken_in_advance() {
        let cells = [3, 70].map(AtomicU64::new);
        assert_eq!(take(&cells), [3, 70]);
        assert_eq!(take(&cells), [0, 0]);
        cells[1].store(5, Ordering::Relaxed);
        assert_eq!(take(&cells), [1, 5]);
        cells[1].store(6, Ordering::Relaxed);
        assert_eq!(take(&cells), [1, 6]);
        assert_eq!(cells[0].load(Ordering::Relaxed).cast_signed(), -2);
        cells[0].fetch_add(3, Ordering::Relaxed);
        assert_eq!(take(&cells), [0, 0]);
        cells[1].store(7, Ordering::Relaxed);
        assert_eq!(take(&cells), [1, 7]);
        assert_eq!(take(&[]), [0, 0]);
    }
}
