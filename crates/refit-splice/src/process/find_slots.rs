//! Finds the slots ([`super::slots`]) in the slacks of a program.

use std::ops::Range;

use refit_sys::maps::Mapping;
use refit_sys::slack;

use super::program::Program;
use super::slots::{SLOTS, Slot};

/// Returns the slots in these slacks with their addresses, without the remains of slots that were
/// overwritten.
pub(super) fn slots(program: &Program, slacks: &[Range<u64>]) -> Vec<(u64, Slot)> {
    let mut found = Vec::new();
    for slack in slacks {
        let mut bytes = [0; slack::SIZE as usize];
        if program.read(slack.start, &mut bytes).is_err() || !bytes.starts_with(&slack::MARK) {
            continue;
        }
        let mut at = SLOTS;
        while at < slack::SIZE {
            match Slot::read(&bytes[at as usize..]) {
                Some(slot) => {
                    let begin = slack.start + at;
                    at += slot.shape.size();
                    found.push((begin, slot));
                }
                // Sizes of slots are multiples of 8.
                None => at += 8,
            }
        }
    }
    found
}

/// Returns the addresses and values of the words from which slots take their return addresses.
pub(super) fn backs(program: &Program, mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let slacks: Vec<_> = slack::in_use(&program.memory, mappings).collect();
    let all = slots(program, &slacks).into_iter();
    all.map(|(at, slot)| (Slot::back_at(slot.shape, at), slot.back())).collect()
}
