//! The commands: a module for each command, or for a few commands about the same subject.

pub(crate) mod adapt;
pub(crate) mod boot;
pub(crate) mod changes;
pub(crate) mod classes;
pub(crate) mod code;
pub(crate) mod cover;
pub(crate) mod debug_dump;
pub(crate) mod doctor;
pub(crate) mod documents;
pub(crate) mod drill;
pub(crate) mod export;
pub(crate) mod instruments;
pub(crate) mod limit;
pub(crate) mod metrics;
pub(crate) mod mount;
pub(crate) mod mounts;
mod moved;
pub(crate) mod moves;
pub(crate) mod objects;
pub(crate) mod plugins;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod ps;
pub(crate) mod record;
pub(crate) mod rehearsal;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod setting;
pub(crate) mod swap;
pub(crate) mod tend;
pub(crate) mod top;
pub(crate) mod tour;
pub(crate) mod trace;
pub(crate) mod watching;
pub(crate) mod wrap;
pub(crate) mod wrappers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Returns a flag that Ctrl-C sets.
pub(crate) fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|e| {
            Failure::new("wait for Ctrl-C", e.to_string(), "run it with fewer open files")
        })?;
    }
    Ok(flag)
}

/// Sleeps. Returns whether it was not interrupted.
pub(crate) fn sleep(time: Duration, interrupted: &AtomicBool) -> bool {
    /// The interval at which Ctrl-C is checked.
    const LOOK: Duration = Duration::from_millis(50);
    let end = Instant::now() + time;
    while !interrupted.load(Ordering::Relaxed) {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return true;
        }
        std::thread::sleep(rest.min(LOOK));
    }
    false
}
