//! Why a function was not seen to be called: nobody called it, or a thread was in one call all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use refit_splice::process::{Program, Refusal, Still};

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silent {
    /// No thread is in it, as far as stacks tell.
    #[error("it was not called in that time")]
    NotCalled,
    /// A thread was in it from the beginning to the end, and in one call.
    #[error(
        "thread {thread} has been in one call of it all the time, where it waits for {callee} to return"
    )]
    InCall {
        /// The thread.
        thread: u32,
        /// Whom the function has called.
        callee: String,
    },
}

const PATIENCE: Duration = Duration::from_secs(10);
/// How much of each stack is looked at.
const DEEPEST: u64 = 1 << 20;
const WORD: u64 = 8;

/// A thread on whose stack one of these return addresses is, and which: that of the innermost call. A stack may still hold
/// addresses that nobody will return to; so this is a guess, and a good one.
///
/// # Errors
/// [`Refusal`]: the program cannot be held still.
pub(crate) fn waiting<T: Copy + Send + Sync>(
    program: &Program,
    returns: &BTreeMap<u64, T>,
) -> Result<Option<(u32, T)>, Refusal> {
    let (found, _) = program.stand_still(PATIENCE, |still| {
        let threads: Vec<u32> = still.threads().collect();
        Ok::<_, Refusal>(threads.into_iter().find_map(|thread| {
            let stack = stack(still, thread)?;
            let (words, _) = stack.as_chunks::<{ WORD as usize }>();
            let innermost = words.iter().find_map(|word| returns.get(&u64::from_le_bytes(*word)));
            innermost.map(|&which| (thread, which))
        }))
    })?;
    Ok(found)
}

/// What is on the stack of a thread, from the top on.
fn stack(still: &Still<'_>, thread: u32) -> Option<Vec<u8>> {
    let top = still.registers(thread).ok()?.rsp.next_multiple_of(WORD);
    let mappings = still.program().mappings().ok()?;
    let mapping = mappings.iter().find(|mapping| mapping.range.contains(&top))?;
    let mut bytes = vec![0; (mapping.range.end - top).min(DEEPEST) as usize];
    still.program().read(top, &mut bytes).ok()?;
    Some(bytes)
}
