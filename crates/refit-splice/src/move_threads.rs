//! Moves program counters along with the code that they are in.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::process::contexts::{self, SearchResult};
use crate::process::own_memory::Wanted;
use crate::process::{Refusal, Still, signal_frames};

/// Bytes of a file's code, roughly.
const FILE: u64 = 16 << 20;

/// Moves the program counters that are keys of `moves`, in contexts that the program has saved
/// itself. If there is too much memory to search, none is moved.
pub(crate) fn move_contexts(still: &Still<'_>, moves: &BTreeMap<u64, u64>) -> Result<(), Refusal> {
    if moves.is_empty() {
        return Ok(());
    }
    let within = ranges(moves.keys().copied());
    let wanted = Wanted { within: &within, is: &|counter| moves.contains_key(&counter) };
    let SearchResult::All(found) = contexts::saved(still, wanted)? else { return Ok(()) };
    found.iter().try_for_each(|one| contexts::put(still.program(), one, moves[&one.counter]))
}

/// Returns few ranges that have all these program counters, which ascend: those of different files
/// have the rest of the memory between them.
pub(crate) fn ranges(counters: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for counter in counters {
        match all.last_mut() {
            Some(last) if counter - last.start < FILE => last.end = counter + 1,
            _ => all.push(counter..counter + 1),
        }
    }
    all
}

/// Moves the program counters that are keys of `moves`, of threads and in signal frames.
///
/// # Errors
/// As [`move_positions`].
pub(crate) fn move_counters(
    still: &mut Still<'_>,
    moves: &BTreeMap<u64, u64>,
) -> Result<(), Refusal> {
    move_positions(still, moves)?;
    move_frames(still, moves)
}

/// Moves those of threads only.
///
/// # Errors
/// [`Refusal::Restless`]: a thread that does not stop is at one of them; then none has been moved.
pub(crate) fn move_positions(
    still: &mut Still<'_>,
    moves: &BTreeMap<u64, u64>,
) -> Result<(), Refusal> {
    let program = still.program();
    let stays = still.asleep().find(|(_, waits)| moves.contains_key(&waits.counter));
    if let Some((thread, _)) = stays {
        return Err(Refusal::restless(program.id(), thread));
    }
    let threads: Vec<_> = still.threads().collect();
    for thread in threads {
        let mut registers = still.registers(thread)?;
        if let Some(&to) = moves.get(&registers.rip) {
            registers.rip = to;
            still.set_registers(thread, &registers)?;
        }
    }
    Ok(())
}

/// Moves those in signal frames only.
pub(crate) fn move_frames(still: &Still<'_>, moves: &BTreeMap<u64, u64>) -> Result<(), Refusal> {
    let program = still.program();
    for frame in signal_frames::saved(still)? {
        if let Some(&to) = moves.get(&frame.counter) {
            program.write(frame.at, &to.to_le_bytes()).map_err(|source| Refusal::System {
                id: program.id(),
                what: "change a signal frame",
                source,
            })?;
        }
    }
    Ok(())
}
