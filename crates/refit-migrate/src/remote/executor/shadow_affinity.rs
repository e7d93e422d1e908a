//! A thread's shadow works on the processors that the thread runs on, as long as that is: what the two hand to each other, a call and what it
//! returns, need not wake another processor then, and whoever else runs at home is left alone.
//!
//! It comes with the first call that it is to make. So calls are made by its own instance's processors, though by the kernel half at home. What the program has chosen for the thread is
//! put back before the thread is home, and while it asks for that, or chooses anew.

use std::cell::Cell;

use refit_sys::process::has_thread;
use refit_sys::schedule::Processors;
use refit_sys::thread;

/// Where the shadow of a thread works.
#[derive(Default)]
pub(super) struct Beside(Cell<Option<Here>>);

/// A shadow that works here.
struct Here {
    process: u32,
    shadow: u32,
    /// The processors that it may use at home.
    before: Processors,
    /// Those that it may use here.
    now: Processors,
}

impl Beside {
    /// Has a shadow of a process on this host work here, if it can.
    pub(super) fn bring(&self, process: u32, shadow: u32) {
        let here = self.0.take().or_else(|| Here::of(process, shadow));
        self.0.set(here);
    }

    /// It works at home again, if it was here.
    pub(super) fn send_back(&self) {
        drop(self.0.take());
    }
}

impl Here {
    fn of(process: u32, shadow: u32) -> Option<Self> {
        let before = Processors::of(shadow).ok()?;
        let now = Processors::of(thread::id()).ok()?;
        (before != now).then(|| now.give(shadow)).and_then(Result::ok)?;
        Some(Self { process, shadow, before, now })
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // Unless somebody has chosen others meanwhile.
        let now = || Processors::of(self.shadow);
        if has_thread(self.process, self.shadow) && now().is_ok_and(|now| now == self.now) {
            // It has ended, if not.
            let _ = self.before.give(self.shadow);
        }
    }
}
