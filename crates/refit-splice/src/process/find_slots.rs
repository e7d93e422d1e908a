//! The slots that stand in the slacks of a program.

use std::ops::Range;

use refit_sys::maps::Mapping;
use refit_sys::slack;

use super::program::Program;
use super::slots::{SLOTS, Slot};

/// The slots of these slacks, and where they are: what was left of others that have been
/// overwritten is not among them.
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
                // Sizes are multiples of it.
                None => at += 8,
            }
        }
    }
    found
}

/// Where slots of a program say where they go back to: the words' addresses, and what they say.
pub(super) fn backs(program: &Program, mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let slacks: Vec<_> = slack::in_use(&program.memory, mappings).collect();
    let all = slots(program, &slacks).into_iter();
    all.map(|(at, slot)| (Slot::back_at(slot.shape, at), slot.back())).collect()
}
