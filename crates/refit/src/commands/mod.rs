//! A module per command, or per handful of commands about the same thing.

pub(crate) mod changes;
pub(crate) mod classes;
pub(crate) mod doctor;
pub(crate) mod documents;
pub(crate) mod mount;
pub(crate) mod mounts;
pub(crate) mod objects;
pub(crate) mod plugins;
pub(crate) mod rehearsal;
pub(crate) mod swap;
pub(crate) mod tour;
pub(crate) mod wrap;
pub(crate) mod wrappers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::failure::Failure;

/// A flag that Ctrl-C sets.
pub(crate) fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|e| {
            Failure::new("wait for Ctrl-C", e.to_string(), "run it with fewer open files")
        })?;
    }
    Ok(flag)
}
