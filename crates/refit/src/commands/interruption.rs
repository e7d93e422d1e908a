//! Ctrl-C, as commands that run until it take it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Returns a flag that Ctrl-C sets.
pub(crate) fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|e| {
            Failure::new("wait for Ctrl-C", e.to_string(), "run refit with fewer open files")
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
