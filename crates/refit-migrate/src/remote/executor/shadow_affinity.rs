//! Moves a thread's shadow to the processors on which the thread runs, for as long as it does. A
//! call and its result then need not wake another processor, and other work on the processors of
//! the origin is left alone.
//!
//! The shadow moves with the first call that it has to make. So calls are made on the processors of
//! the thread's node, though by the origin's half of the thread. The affinity that the program has
//! chosen is restored before the thread returns, and while the program asks for it or changes it.

use std::cell::Cell;

use refit_sys::process::has_thread;
use refit_sys::schedule::Processors;
use refit_sys::thread;

/// Where a thread's shadow runs.
#[derive(Default)]
pub(super) struct ShadowAffinity(Cell<Option<MovedShadow>>);

/// A shadow that was moved here.
struct MovedShadow {
    process: u32,
    shadow: u32,
    /// The processors that it may use at its origin.
    before: Processors,
    /// The processors that it may use here.
    now: Processors,
}

impl ShadowAffinity {
    /// Moves the shadow of a process on this host here, if that can be done.
    pub(super) fn move_here(&self, process: u32, shadow: u32) {
        let here = self.0.take().or_else(|| MovedShadow::of(process, shadow));
        self.0.set(here);
    }

    /// Moves the shadow back, if it was moved.
    pub(super) fn move_back(&self) {
        drop(self.0.take());
    }
}

impl MovedShadow {
    fn of(process: u32, shadow: u32) -> Option<Self> {
        let before = Processors::of(shadow).ok()?;
        let now = Processors::of(thread::id()).ok()?;
        (before != now).then(|| now.give(shadow)).and_then(Result::ok)?;
        Some(Self { process, shadow, before, now })
    }
}

impl Drop for MovedShadow {
    fn drop(&mut self) {
        // Unless the program has chosen others meanwhile.
        let now = || Processors::of(self.shadow);
        if has_thread(self.process, self.shadow) && now().is_ok_and(|now| now == self.now) {
            // This fails only if the shadow has ended.
            let _ = self.before.give(self.shadow);
        }
    }
}
