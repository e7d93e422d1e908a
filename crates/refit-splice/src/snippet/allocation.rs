//! Allocates the registers of a snippet.

use refit_analysis::live::{Live, flag};

use super::registers::{Needs, RED_ZONE, Set};
use super::setting::Setting;
use super::step::Step;
use crate::listing::Home;

/// The flags that arithmetic changes; snippets change no others.
const STATUS: u8 =
    flag::CARRY | flag::PARITY | flag::AUXILIARY | flag::ZERO | flag::SIGN | flag::OVERFLOW;

/// Registers in the order in which snippets take them; all but the stack pointer.
const CHOICE: [u8; 15] = [11, 10, 0, 1, 2, 6, 7, 8, 9, 3, 5, 13, 14, 15, 12];

/// The registers that a snippet takes, and where it keeps the program's values of them.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    /// Registers for any use.
    pub(super) scratch: Vec<u8>,
    /// Where the program's value of each register is.
    pub(super) homes: [Home; 16],
    /// Registers that have to be restored, since they are live.
    pub(super) kept: Set,
    /// Whether flags have to be saved.
    pub(super) flags: bool,
    /// Whether the program uses the red zone, and the snippet pushes something.
    pub(super) red_zone: bool,
}

impl Allocation {
    pub(super) fn new(steps: &[Step], live: Live, setting: Setting) -> Self {
        let nothing = Needs { scratch: 0, fixed: Set::NONE, reads: Set::NONE, stack: false };
        let mut needs = steps.iter().fold(nothing, |mut all, step| {
            all.take(step.needs(setting.thread, setting.cells.lane));
            all
        });
        let flags = live.flags & STATUS != 0 && steps.iter().any(Step::changes_flags);
        if flags && setting.lahf {
            needs.fixed |= Set::of(&[0]);
        }
        let kept = Set(live.general);
        // Dead registers come first.
        let wanted = kept | needs.reads;
        let mut order: Vec<u8> =
            CHOICE.into_iter().filter(|&register| !needs.fixed.has(register)).collect();
        order.sort_by_key(|&register| wanted.has(register));
        let scratch: Vec<u8> = order.iter().copied().take(needs.scratch).collect();
        let changed = Set::of(&scratch) | needs.fixed;
        let mut free =
            order.into_iter().skip(scratch.len()).filter(|&register| !wanted.has(register));
        let (mut homes, mut pushed) = ([Home::Same; 16], Vec::new());
        for register in CHOICE.into_iter().filter(|&one| changed.has(one) && wanted.has(one)) {
            match free.next() {
                Some(other) => homes[usize::from(register)] = Home::Register(other),
                None => pushed.push(register),
            }
        }
        let red_zone = live.red_zone && (needs.stack || flags || !pushed.is_empty());
        let mut depth = if red_zone { RED_ZONE as i16 } else { 0 };
        for register in pushed {
            depth += 8;
            homes[usize::from(register)] = Home::Stack(depth);
        }
        Self { scratch, homes, kept, flags, red_zone }
    }
}
