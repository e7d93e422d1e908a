//! Reads what installed sites have counted and stored, while the program goes on.

use std::collections::BTreeMap;
use std::io;

use crate::install::Installed;
use crate::kept::{self, KeptValues};
use crate::snippet::{DURATIONS, Step, TIMER};
use crate::stacks;
use crate::store::{Store, content};

/// Index of the time among the numbers of a timer ([`Installed::timers`]).
pub const TIME: usize = 0;
/// Index of the number of entries among the numbers of a timer.
pub const ENTRIES: usize = 1;
/// Index of the number of exits among the numbers of a timer.
pub const EXITS: usize = 2;

/// Cells by key.
pub type Keyed = BTreeMap<u64, Vec<u64>>;

impl Installed {
    /// Reads which cells are set in the first lane, in which [`Action::Flag`](crate::Action::Flag)
    /// stores.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn flags(&self) -> io::Result<Vec<bool>> {
        let mut set = vec![false; self.cells as usize];
        for area in &self.areas {
            for (flag, word) in set.iter_mut().zip(area.words(0, self.cells as usize)?) {
                *flag |= word != 0;
            }
        }
        Ok(set)
    }

    /// Reads the timers of all threads: time, entries and exits by thread, and the number of calls
    /// that were not timed.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn timers(&self, step: &Step, first: u32) -> io::Result<(BTreeMap<u64, [u64; 3]>, u64)> {
        let (mut threads, mut lost) = (BTreeMap::<u64, [u64; 3]>::new(), 0);
        for area in &self.areas {
            // Exits are read before the time, and the time before entries: a thread that enters or
            // leaves during the reading appears to be inside, for no time.
            for number in [EXITS, TIME, ENTRIES] {
                let words = area.words(u64::from(first) * 8, step.cells() as usize)?;
                let (lines, _) = words.as_chunks::<{ TIMER as usize }>();
                let Some((rest, lines)) = lines.split_first() else { continue };
                lost += if number == EXITS { rest[0] } else { 0 };
                for line in lines.iter().filter(|line| line[0] != 0) {
                    let timer = threads.entry(line[0]).or_default();
                    timer[number] = timer[number].wrapping_add(line[1 + number]);
                }
            }
        }
        Ok((threads, lost))
    }

    /// Reads the cells of all threads ([`DURATIONS`]), and the number of calls
    /// that were not timed.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn durations(&self, step: &Step, first: u32) -> io::Result<(Keyed, u64)> {
        let (mut threads, mut lost) = (Keyed::new(), 0);
        for area in &self.areas {
            let words = area.words(u64::from(first) * 8, step.cells() as usize)?;
            let (lines, _) = words.as_chunks::<{ DURATIONS as usize }>();
            let Some((rest, lines)) = lines.split_first() else { continue };
            lost += rest[0];
            for line in lines.iter().filter(|line| line[0] != 0) {
                let sum = threads.entry(line[0]).or_insert_with(|| vec![0; line.len()]);
                sum.iter_mut().zip(line).for_each(|(sum, part)| *sum = sum.wrapping_add(*part));
            }
        }
        Ok((threads, lost))
    }

    /// Reads the frames of a stack, the innermost first, by the number that is the value of
    /// [`Base::Stack`](crate::Base::Stack): the address of the site, then the last byte of each
    /// call. [`UNKNOWN_FRAME`](crate::UNKNOWN_FRAME) follows where it was not known how to go on.
    /// `None` if there is no such stack, or if it is not complete yet.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn stack(&self, number: u64) -> io::Result<Option<Vec<u64>>> {
        let place = self.stored(self.stacks, number)?;
        Ok(place.as_deref().and_then(stacks::frames))
    }

    /// Reads a key of several items by its number: the words of its parts, and maybe more. `None`
    /// if there is no such key, or if it is not complete yet.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn tuple(&self, number: u64) -> io::Result<Option<Vec<u64>>> {
        let place = self.stored(self.tuples, number)?;
        Ok(place.as_deref().and_then(content).map(<[u64]>::to_vec))
    }

    /// Reads the values of a map; `tuples` says whether its keys have several items.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn kept(&self, map: u16, tuples: bool) -> io::Result<KeptValues> {
        let (Some(area), Some(first)) = (self.areas.first(), self.kept) else {
            return Ok(KeptValues::default());
        };
        let read = || area.words(first + u64::from(map) * kept::MAP, kept::MAP as usize / 8);
        Ok(kept::values(&read()?, &read()?, tuples))
    }

    /// Reads the place with this number of a store in the first area.
    fn stored(&self, store: Option<Store>, number: u64) -> io::Result<Option<Vec<u64>>> {
        let place = store.and_then(|store| Some((store.place(number)?, store.place_words())));
        let (Some(area), Some((at, words))) = (self.areas.first(), place) else { return Ok(None) };
        area.words(at, words).map(Some)
    }
}
