//! Moves that fail on purpose, to test that their threads go on: a node whose `REFIT_MOVE_FAULT`
//! names a step has each third of these steps fail.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A step of a move, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Setting a program up (origin).
    Plant,
    /// Taking a thread's registers (origin).
    Leave,
    /// The arrival of a thread; the destination ends then, so nobody reports what has become of the
    /// thread.
    Arrive,
    /// Making a replica (destination).
    Replica,
    /// Making a task of the replica (destination).
    Task,
    /// A thread has arrived, and waits for its registers forever (destination).
    Stall,
    /// Giving the task the thread's registers (destination).
    Registers,
    /// Turning memory into frames (origin).
    Convert,
    /// Mapping memory (destination).
    Map,
    /// Invalidating; what should be invalidated is kept, which nobody would notice but
    /// [`crate::origin::consistency`] (destination).
    Invalidate,
    /// Taking a thread's registers, to send them back (destination).
    Back,
    /// Giving a thread its registers again (origin).
    Come,
}

/// The steps, by name.
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

/// One of this many fails.
const OF: u32 = 3;

/// Returns whether a step fails now.
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

/// Never returns if a step fails now: like any wait that does not end for an unknown reason.
pub(crate) fn stall(step: Step) {
    if fails(step) {
        loop {
            std::thread::park();
        }
    }
}

/// The error of a step that fails on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} fails on purpose")]
struct InjectedFault(Step);

/// Fails if a step fails now.
///
/// # Errors
/// The error of the step.
pub(crate) fn reach(step: Step) -> io::Result<()> {
    if fails(step) { Err(io::Error::other(InjectedFault(step))) } else { Ok(()) }
}
