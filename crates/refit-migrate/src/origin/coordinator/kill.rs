//! The end of a program that cannot go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refit_tracer::process::kill;

/// Kills one program, and says why, once. Whoever finds that it cannot go on does so at once, and leaves it to nobody who may wait for it.
pub(super) struct Killer {
    process: u32,
    /// It shares the program's memory and may wait for a page of it; the signal that ends the program is not for it.
    agent: u32,
    is_over: AtomicBool,
    /// Whether any program had to be killed.
    killed: Arc<AtomicBool>,
}

impl Killer {
    pub(super) fn new(process: u32, agent: u32, killed: Arc<AtomicBool>) -> Self {
        Self { process, agent, is_over: AtomicBool::new(false), killed }
    }

    /// Kills it; the first reason counts.
    pub(super) fn kill(&self, why: &str) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let Self { process, agent, .. } = *self;
            let name = refit_sys::process::name(process);
            // Relaxed: the end of its coordinator, which follows, is told by a channel.
            self.killed.store(true, Ordering::Relaxed);
            refit_log::say(&format!("{name} ({process}) is killed: {why}"));
            for one in [process, agent] {
                // It is of this user.
                let _ = kill(one);
            }
        }
    }

    /// Its coordinator ends: whatever has the number from now on is another program.
    pub(super) fn disarm(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
