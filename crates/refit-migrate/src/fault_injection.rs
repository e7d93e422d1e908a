//! Moves that fail on purpose, to see that their threads go on: an instance that `REFIT_MOVE_FAULT` names a step for has each third of
//! these fail.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A step of a move, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// What a program needs in it is put there (origin).
    Plant,
    /// A thread's registers are taken (origin).
    Leave,
    /// The host ends when a thread arrives: nobody says what has become of it.
    Arrive,
    /// A replica is made (host).
    Replica,
    /// A task is made in it (host).
    Task,
    /// A thread has arrived, and waits for its registers for ever (host).
    Stall,
    /// The task is given the thread's registers (host).
    Registers,
    /// Memory becomes frames (origin).
    Convert,
    /// Memory is mapped (host).
    Map,
    /// What is to be forgotten is kept, which nobody would notice but [`crate::origin::consistency`] (host).
    Invalidate,
    /// A thread's registers are taken, to be sent back (host).
    Back,
    /// A thread is given its registers again (origin).
    Come,
}

/// All of them, by name.
const STEPS: [(&str, Step); 12] = [
    ("plant", Step::Plant),
    ("leave", Step::Leave),
    ("arrive", Step::Arrive),
    ("replica", Step::Replica),
    ("task", Step::Task),
    ("stall", Step::Stall),
    ("registers", Step::Registers),
    ("convert", Step::Convert),
    ("map", Step::Map),
    ("forget", Step::Invalidate),
    ("back", Step::Back),
    ("come", Step::Come),
];

/// Of how many one fails.
const OF: u32 = 3;

/// Whether a step fails now.
pub(crate) fn fails(step: Step) -> bool {
    static WANTED: OnceLock<Option<Step>> = OnceLock::new();
    static TURN: AtomicU32 = AtomicU32::new(1);
    let wanted = WANTED.get_or_init(|| {
        let name = std::env::var("REFIT_MOVE_FAULT").ok()?;
        STEPS.iter().find(|(one, _)| *one == name).map(|(_, step)| *step)
    });
    // Relaxed: only its own count matters.
    *wanted == Some(step) && TURN.fetch_add(1, Ordering::Relaxed).is_multiple_of(OF)
}

/// Never returns where a step is to stall now: as any wait of which nobody knows why it does not end.
pub(crate) fn stall(step: Step) {
    if fails(step) {
        loop {
            std::thread::park();
        }
    }
}

/// The error of a step that fails now.
///
/// # Errors
/// It does.
pub(crate) fn reach(step: Step) -> io::Result<()> {
    if fails(step) { Err(io::Error::other(format!("{step:?} fails on purpose"))) } else { Ok(()) }
}
