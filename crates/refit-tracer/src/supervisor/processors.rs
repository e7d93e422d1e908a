//! Programs whose threads run at several instances are told that they may use the processors of all: what makes as many threads as there are
//! processors makes enough, and what waits for them by looking knows that they run (Katz 2014, §4.6: one system).
//!
//! That is for programs that use what is the instance's, as they began. Who has chosen other processors is told those.

use refit_sys::foreign::Memory;
use refit_sys::launch::PROCESSORS;
use refit_sys::schedule;
use refit_sys::trace::{Event, Tracee};

use crate::resume::Resume;
use crate::supervisor::Supervisor;
use crate::syscall::about_to_call;

/// The processors of an instance, and what its programs are told instead; by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its own.
    pub own: Vec<usize>,
    /// Those that are told.
    pub all: Vec<usize>,
}

impl Shown {
    /// What is told of a set of processors, a bit each, as the kernel has them.
    fn tell(&self, set: &mut [u8]) {
        let has = |one: usize| set.get(one / 8).is_some_and(|byte| byte >> (one % 8) & 1 == 1);
        if (0..8 * set.len()).filter(|&one| has(one)).eq(self.own.iter().copied()) {
            for &one in &self.all {
                if let Some(byte) = set.get_mut(one / 8) {
                    *byte |= 1 << (one % 8);
                }
            }
        }
    }
}

impl Supervisor {
    /// Its programs are told these, if their filter says when they ask ([`refit_sys::launch::be_movable`]).
    pub fn show_processors(&mut self, shown: Shown) {
        self.shown = Some(shown);
    }

    /// What an event means to a thread that asks which processors a thread may use; `None`: what it means to any.
    pub(super) fn take_look(&self, held: &Tracee, event: Event) -> Option<Resume> {
        let shown = self.shown.as_ref()?;
        if event != (Event::Seccomp { message: PROCESSORS }) {
            return None;
        }
        // Whatever is wrong with the call the kernel says; and what else stands in the way makes it tell the instance's.
        let (_, [of, length, place, ..]) = about_to_call(held).ok()?;
        let task = held.thread();
        let of = if of as u32 == 0 { task } else { of as u32 };
        let mut set = [0; schedule::SET];
        let length = usize::try_from(length).ok()?.min(schedule::SET);
        let told = schedule::processors(of, &mut set[..length]).ok()?;
        shown.tell(&mut set[..told]);
        Memory::of(task).ok()?.write(place, &set[..told]).ok()?;
        let mut registers = held.registers().ok()?;
        // No call, and this is what it has returned.
        registers.orig_rax = u64::MAX;
        registers.rax = told as u64;
        held.set_registers(&registers).ok()?;
        Some(self.hook.resume(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_instances_processors_is_told_all() {
        let shown = Shown { own: vec![1, 9], all: vec![0, 1, 9, 100] };
        let told = |mut set: [u8; 2]| {
            shown.tell(&mut set);
            set
        };
        assert_eq!(told([0b10, 0b10]), [0b11, 0b10]);
        // Others were chosen.
        assert_eq!([[0b10, 0], [0b11, 0b10], [0, 0]].map(told), [[0b10, 0], [0b11, 0b10], [0, 0]]);
    }
}
