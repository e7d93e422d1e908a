//! The messages that probes write while they are watched.

use refit_probe::script::{Outside, Script};
use refit_probe::spec::Spec;
use serde::Serialize;

use super::reading::Watched;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// A message, for programs.
#[derive(Serialize)]
struct MessageRecord<'w> {
    process: u32,
    module: &'w str,
    name: &'w str,
    thread: u32,
    /// Nanoseconds since the system was started.
    time: u64,
    text: &'w str,
}

/// Whether a script writes messages.
pub(super) fn are_written(script: &Script) -> bool {
    let mut outside = script.outside();
    outside.any(|action| matches!(action, Outside::Message(_)))
        || script.probes.iter().any(Spec::prints)
}

/// Prints the messages that came since the last call. Those of several programs are in the order of
/// their times, if they came between the same calls.
pub(super) fn print(watched: &[Watched<'_>], out: &mut Output) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new("read messages", e.to_string(), "try again");
    let mut all = Vec::new();
    for one in watched {
        let printed = one.watch.printed().map_err(failed)?;
        all.extend(printed.into_iter().map(|message| (one, message)));
    }
    all.sort_by_key(|(_, message)| message.time);
    for (one, message) in &all {
        if out.json() {
            let place = &one.watch.watched[message.place];
            out.object(&MessageRecord {
                process: one.program.id(),
                module: &place.module,
                name: &place.name,
                thread: message.thread,
                time: message.time,
                text: &message.text,
            })?;
        } else {
            // The texts of programs in it have no control characters.
            out.raw(message.text.as_bytes())?;
        }
    }
    if all.is_empty() { Ok(()) } else { out.flush() }
}

/// Says how many messages were lost.
pub(super) fn tell_lost(watched: &[Watched<'_>]) {
    let lost: u64 = watched.iter().map(|one| one.watch.unprinted()).sum();
    if lost > 0 {
        let messages = format::counted(lost, "message");
        say!("refit: {messages} lost: written faster than they could be printed");
    }
}
