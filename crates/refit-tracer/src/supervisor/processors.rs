//! Reports the processors of all instances to programs whose threads run at several of them: a
//! program that makes as many threads as there are processors makes enough, and one that waits by
//! spinning knows that the others run (Katz 2014, §4.6: one system).
//!
//! This holds for programs that use the instance's processors, as they began. A program that has
//! chosen other processors sees those.

use refit_sys::foreign::Memory;
use refit_sys::launch::PROCESSORS;
use refit_sys::schedule;
use refit_sys::trace::{Event, Tracee};

use crate::resume::Resume;
use crate::supervisor::{Shown, Supervisor};
use crate::syscall::about_to_call;

impl Supervisor {
    /// Has programs see these processors, if their filter reports that they ask
    /// ([`refit_sys::launch::be_movable`]).
    pub fn show_processors(&mut self, shown: Shown) {
        self.shown = Some(shown);
    }

    /// Answers a thread that asks which processors a thread may use (`sched_getaffinity`). Returns
    /// `None` for other events, and where the kernel answers: it reports whatever is wrong with the
    /// call, and the instance's processors if anything else fails.
    pub(super) fn on_affinity_query(&self, tracee: &Tracee, event: Event) -> Option<Resume> {
        let shown = self.shown.as_ref()?;
        if event != (Event::Seccomp { message: PROCESSORS }) {
            return None;
        }
        let (_, [of, length, place, ..]) = about_to_call(tracee).ok()?;
        let task = tracee.thread();
        let of = if of as u32 == 0 { task } else { of as u32 };
        let mut mask = [0; schedule::SET];
        let length = usize::try_from(length).ok()?.min(schedule::SET);
        let filled = schedule::processors(of, &mut mask[..length]).ok()?;
        shown.extend(&mut mask[..filled]);
        Memory::of(task).ok()?.write(place, &mask[..filled]).ok()?;
        let mut registers = tracee.registers().ok()?;
        // The call is not made, and this is its result.
        registers.orig_rax = u64::MAX;
        registers.rax = filled as u64;
        tracee.set_registers(&registers).ok()?;
        Some(self.hook.resume(task))
    }
}
