//! The switches in whose tracked calls a thread is: what tells a re-entrant call from a new one.
//!
//! A thread is mostly in none, seldom in one, and in more only where objects that are switched call each other. So
//! some places are kept where a look is a few loads, and what does not fit goes into a list behind them.
//!
//! A thread enters each switch once, with its outermost tracked call; whoever entered leaves.

use std::cell::{Cell, RefCell};

/// Places before the list.
const FEW: usize = 3;

/// What an empty place holds; no switch has this number.
const NONE: u64 = 0;

thread_local! {
    /// Without a destructor, so that a look is a load.
    static PLACES: [Cell<u64>; FEW] = const { [const { Cell::new(NONE) }; FEW] };
    /// Whether there is anything in the list.
    static CROWDED: Cell<bool> = const { Cell::new(false) };
    static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread is in a tracked call of the switch, itself or through a token.
#[inline]
pub(crate) fn inside(switch: u64) -> bool {
    PLACES.with(|places| places.iter().any(|place| place.get() == switch))
        || CROWDED.get() && LIST.with_borrow(|list| list.contains(&switch))
}

/// This thread enters a tracked call of a switch that it is not inside of.
#[inline]
pub(crate) fn enter(switch: u64) {
    if !put(NONE, switch) {
        LIST.with_borrow_mut(|list| list.push(switch));
        CROWDED.set(true);
    }
}

/// It leaves it again.
#[inline]
pub(crate) fn leave(switch: u64) {
    if !put(switch, NONE) {
        LIST.with_borrow_mut(|list| {
            list.retain(|other| *other != switch);
            CROWDED.set(!list.is_empty());
        });
    }
}

/// All of them.
pub(crate) fn all() -> Vec<u64> {
    let few = PLACES.with(|places| places.each_ref().map(Cell::get));
    let few = few.into_iter().filter(|switch| *switch != NONE);
    few.chain(LIST.with_borrow(Clone::clone)).collect()
}

/// Puts `new` into the first place that holds `old`; whether there was one.
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
        let entered: Vec<u64> = (1..=2 * FEW as u64).collect();
        for (n, switch) in entered.iter().enumerate() {
            enter(*switch);
            assert_eq!(all(), entered[..=n]);
        }
        // Out of turn, so that places and list both get holes.
        for switch in [1, 5, 3, 6, 2, 4] {
            assert!(inside(switch));
            leave(switch);
            assert!(!inside(switch));
        }
        assert!(all().is_empty() && !CROWDED.get());
    }
}
