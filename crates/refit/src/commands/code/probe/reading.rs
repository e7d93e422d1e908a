//! The readings of probes so far.

use refit_probe::reading::Reading;
use refit_probe::steps::Watching;
use refit_probe::watch::Watch;
use refit_splice::process::Program;

use crate::failure::Failure;
use crate::format;

/// A program, and the probes in it.
pub(super) struct Watched<'p> {
    pub(super) program: &'p Program,
    pub(super) watch: Watch,
}

/// The result of one action at one place, under one key or none.
pub(super) struct Read<'w> {
    pub(super) process: u32,
    pub(super) module: &'w str,
    pub(super) name: &'w str,
    pub(super) address: u64,
    pub(super) watching: &'w Watching,
    pub(super) key: Key,
    pub(super) reading: Reading,
}

/// Which part of what an action tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// All of it.
    All,
    /// The result for a value.
    Of(u64),
    /// The results for values that had no slot.
    Others,
}

/// Reads everything.
pub(super) fn read<'w>(watched: &'w [Watched<'_>]) -> Result<Vec<Read<'w>>, Failure> {
    let failed = |e: std::io::Error| Failure::new("read the counts", e.to_string(), "try again");
    let mut all = Vec::new();
    for Watched { program, watch } in watched {
        for place in &watch.watched {
            for watching in &place.actions {
                let counts = watch.read(watching).map_err(failed)?;
                if counts.lost > 0 {
                    let calls = format::counted(counts.lost, "call");
                    let (module, name) = (&place.module, &place.name);
                    say!(
                        "refit: {calls} of {module}:{name} not timed: too many threads, or nested too deeply"
                    );
                }
                let mut add = |key, reading| {
                    let (module, name) = (place.module.as_str(), place.name.as_str());
                    let (process, address) = (program.id(), place.address);
                    all.push(Read { process, module, name, address, watching, key, reading });
                };
                let keyed = watching.by.is_some();
                counts.keys.into_iter().for_each(|(key, reading)| add(Key::Of(key), reading));
                if !keyed {
                    add(Key::All, counts.all);
                } else if !counts.all.is_zero() {
                    add(Key::Others, counts.all);
                }
            }
        }
    }
    Ok(all)
}
