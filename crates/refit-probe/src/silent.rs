//! Finds out why no call of a function was measured: no thread called it, or a thread was in one
//! call all the time.

use std::collections::BTreeMap;

use refit_splice::process::{Program, Refusal, STOP_TIMEOUT, Still};

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silent {
    /// No thread is in it, as far as stacks show.
    #[error("it was not called in that time")]
    NotCalled,
    /// A thread was in one call of it from the beginning to the end.
    #[error(
        "thread {thread} was in one call of it all the time, and waits there for {callee} to return"
    )]
    InCall {
        /// Id of the thread.
        thread: u32,
        /// The callee that it waits for.
        callee: String,
    },
}

/// Bytes of each stack that are searched.
const DEEPEST: u64 = 1 << 20;
const WORD: u64 = 8;

/// Finds a thread whose stack has one of these return addresses; returns the return address of the
/// innermost call. A stack may still hold addresses that were returned to, so the result is a
/// guess, if a good one.
///
/// # Errors
/// [`Refusal`]: the program cannot be stopped.
pub(crate) fn waiting<T: Copy + Send + Sync>(
    program: &Program,
    returns: &BTreeMap<u64, T>,
) -> Result<Option<(u32, T)>, Refusal> {
    let (found, _) = program.stand_still(STOP_TIMEOUT, |still| {
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

/// Reads the stack of a thread, from its pointer up.
fn stack(still: &Still<'_>, thread: u32) -> Option<Vec<u8>> {
    let top = still.registers(thread).ok()?.rsp.next_multiple_of(WORD);
    let mappings = still.program().mappings().ok()?;
    let mapping = mappings.iter().find(|mapping| mapping.range.contains(&top))?;
    let mut bytes = vec![0; (mapping.range.end - top).min(DEEPEST) as usize];
    still.program().read(top, &mut bytes).ok()?;
    Some(bytes)
}
