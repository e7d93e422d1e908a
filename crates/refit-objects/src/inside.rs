//! The switches that a thread is inside of, by a tracked call, which distinguishes a re-entrant
//! call from a new one.
//!
//! A thread is usually inside of no switch, rarely of one, and of more only where switched objects
//! call each other. So there are a few fixed slots, which take a few loads to search, and a list
//! for further switches. A thread enters each switch once, with its outermost tracked call, and
//! that call leaves it.

use std::cell::{Cell, RefCell};

/// The number of slots before the list.
const SLOTS: usize = 3;

/// The content of an empty slot; no switch has this number.
const NONE: u64 = 0;

thread_local! {
    /// Without a destructor, so that an access is a plain load.
    static PLACES: [Cell<u64>; SLOTS] = const { [const { Cell::new(NONE) }; SLOTS] };
    /// Whether the list is not empty.
    static CROWDED: Cell<bool> = const { Cell::new(false) };
    static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether this thread is in a tracked call of the switch, itself or through a token.
#[inline]
pub(crate) fn inside(switch: u64) -> bool {
    PLACES.with(|places| places.iter().any(|place| place.get() == switch))
        || CROWDED.get() && LIST.with_borrow(|list| list.contains(&switch))
}

/// Records that this thread enters a tracked call of a switch that it is not inside of.
#[inline]
pub(crate) fn enter(switch: u64) {
    if !put(NONE, switch) {
        LIST.with_borrow_mut(|list| list.push(switch));
        CROWDED.set(true);
    }
}

/// Records that this thread leaves its tracked call of a switch.
#[inline]
pub(crate) fn leave(switch: u64) {
    if !put(switch, NONE) {
        LIST.with_borrow_mut(|list| {
            list.retain(|other| *other != switch);
            CROWDED.set(!list.is_empty());
        });
    }
}

/// Returns all switches that this thread is inside of.
pub(crate) fn all() -> Vec<u64> {
    let few = PLACES.with(|places| places.each_ref().map(Cell::get));
    let few = few.into_iter().filter(|switch| *switch != NONE);
    few.chain(LIST.with_borrow(Clone::clone)).collect()
}

/// Stores `new` into the first slot that holds `old`. Returns whether there was one.
#[inline]
fn put(old: u64, new: u64) -> bool {
    PLACES.with(|places| {
        let place = places.iter().find(|place| place.get() == old);
        place.map(|place| place.set(new)).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_all_switches_that_it_is_inside_of() {
        let entered: Vec<u64> = (1..=2 * SLOTS as u64).collect();
        for (n, switch) in entered.iter().enumerate() {
            enter(*switch);
            assert_eq!(all(), entered[..=n]);
        }
        // Out of order, so that both the slots and the list get holes.
        for switch in [1, 5, 3, 6, 2, 4] {
            assert!(inside(switch));
            leave(switch);
            assert!(!inside(switch));
        }
        assert!(all().is_empty() && !CROWDED.get());
    }
}
