//! Kills programs that cannot go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refit_tracer::process::kill;

/// Kills one program and reports why, once. The thread that finds that the program cannot go on
/// calls this at once, and leaves it to no other thread, which might wait for the program.
pub(super) struct Killer {
    process: u32,
    /// The agent's task. It shares the program's memory and may wait for a page of it, and the
    /// signal that ends the program does not reach it.
    agent: u32,
    is_over: AtomicBool,
    /// Whether any program had to be killed.
    killed: Arc<AtomicBool>,
}

impl Killer {
    pub(super) fn new(process: u32, agent: u32, killed: Arc<AtomicBool>) -> Self {
        Self { process, agent, is_over: AtomicBool::new(false), killed }
    }

    /// Kills the program; only the first call reports its reason.
    pub(super) fn kill(&self, why: &str) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let Self { process, agent, .. } = *self;
            let name = refit_sys::process::name(process);
            // Relaxed: the end of the coordinator, which follows, is reported by a channel.
            self.killed.store(true, Ordering::Relaxed);
            refit_log::say(&format!("{name} ({process}) is killed: {why}"));
            for one in [process, agent] {
                // It belongs to this user.
                let _ = kill(one);
            }
        }
    }

    /// Disarms the killer as the coordinator ends: the number may become another program's.
    pub(super) fn disarm(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
