//! Makes system calls in a stopped program. One of its threads makes them, and returns to its own
//! registers even if refit is killed ([`refit_sys::trace::Tracee::call_returning`]).

use std::ops::Range;
use std::sync::OnceLock;

use refit_sys::slack;
use refit_sys::trace::{CallError, RETURNING_BYTES, remaining};

use super::contexts::{self, SearchResult};
use super::held::HeldTask;
use super::own_memory::Wanted;
use super::program::Program;
use super::refusal::Refusal;
use super::slots::{CODE, LONGEST_TEXT, SLOTS, TEXT};
use super::still::Still;

/// Makes system calls in a stopped program.
#[derive(Debug)]
pub struct Call {
    thread: u32,
    slack: Range<u64>,
    /// Whether the thread's filters are suspended during a call.
    past_filters: bool,
}

impl Call {
    /// Selects a thread that may make any call, or whose filters can be suspended, and a place for
    /// the code by which it makes them.
    ///
    /// # Errors
    /// [`Refusal::Filtered`]: no thread may make any call. [`Refusal::NoSyscall`]: there is no
    /// place for the code. [`Refusal::Replaced`]: the process runs another program.
    /// [`Refusal::Restless`]: all threads that may make calls wait where no signal reaches them.
    pub fn new(still: &Still<'_>) -> Result<Self, Refusal> {
        let id = still.program.id();
        let (thread, past_filters) = choose(still)?;
        match slack(still)? {
            Some(slack) => Ok(Self { thread, slack, past_filters }),
            None if is_replaced(still.program)? => Err(Refusal::Replaced { id }),
            None => Err(Refusal::NoSyscall { id }),
        }
    }

    /// Returns the thread that makes the calls.
    pub(super) fn thread(&self) -> u32 {
        self.thread
    }

    /// Makes a call with this number and these arguments, and returns its result; `name` is for
    /// error messages.
    ///
    /// # Errors
    /// [`Refusal::Call`]: the call failed. Others: the program was killed.
    pub fn make(
        &self,
        still: &mut Still<'_>,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, Refusal> {
        self.make_with_text(still, name, number, c"", |_| arguments)
    }

    /// Makes a call whose first or second argument is a text of less than 32 bytes, which is in the
    /// program's memory during the call.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_with_text(
        &self,
        still: &mut Still<'_>,
        name: &'static str,
        number: i64,
        text: &std::ffi::CStr,
        arguments: impl FnOnce(u64) -> [u64; 6],
    ) -> Result<u64, Refusal> {
        let program = still.program;
        let id = program.id();
        still.mappings = OnceLock::new();
        let failed = |source| Refusal::System { id, what: "write code of refit into it", source };
        let mut before = [0; SLOTS as usize];
        program.read(self.slack.start, &mut before).map_err(failed)?;
        let place = self.slack.start + TEXT;
        let mut bytes = [0; LONGEST_TEXT];
        let text = text.to_bytes_with_nul();
        bytes.get_mut(..text.len()).ok_or(Refusal::NoSyscall { id })?.copy_from_slice(text);
        // The mark comes first, so that the rest can be identified as refit's.
        program.write(self.slack.start, &slack::MARK).map_err(failed)?;
        program.write(place, &bytes).map_err(failed)?;
        let held = still.threads.get_mut(&self.thread).ok_or(Refusal::NoSuch { id })?;
        let (at, memory) = (self.slack.start + CODE, &program.memory);
        let arguments = arguments(place);
        let call = |held: &mut HeldTask| held.call_returning(memory, at, number, arguments);
        let made = if self.past_filters { held.past_filters(call) } else { call(held) };
        let made = made.map_err(|error| match error {
            CallError::Call(source) => Refusal::Call { id, call: name, source },
            CallError::Lost(error) => Refusal::of_tracing(id, "make a system call in it", error),
        });
        let clean = if before.starts_with(&slack::MARK) { &before[CODE as usize..] } else { &[] };
        let (rest, begin) = if clean.is_empty() { (&before[..], 0) } else { (clean, CODE) };
        program.write(self.slack.start + begin, rest).map_err(failed)?;
        made
    }
}

/// Selects a thread for calls. Returns whether its filters have to be suspended.
fn choose(still: &Still<'_>) -> Result<(u32, bool), Refusal> {
    let id = still.program.id();
    let makes_calls = |&thread: &u32| still.held(thread).is_ok_and(HeldTask::makes_calls);
    let (filtered, mut free): (Vec<u32>, Vec<u32>) =
        still.own().filter(makes_calls).partition(|&thread| still.program.filters(thread));
    // A pending signal would run first, so threads without one are preferred.
    free.sort_by_key(|&thread| {
        still.held(thread).is_ok_and(|held| held.has_signals().unwrap_or(true))
    });
    if let Some(&thread) = free.first() {
        return Ok((thread, false));
    }
    let passes = |&thread: &u32| still.held(thread).is_ok_and(HeldTask::passes_filters);
    if let Some(thread) = filtered.into_iter().find(passes) {
        return Ok((thread, true));
    }
    let mut others = still.own().chain(still.asleep().map(|(thread, _)| thread));
    Err(match others.find(|&thread| !still.program.filters(thread)) {
        Some(thread) => Refusal::restless(id, thread),
        None => Refusal::Filtered { id },
    })
}

/// Returns a slack whose code for calls nobody will run.
fn slack(still: &Still<'_>) -> Result<Option<Range<u64>>, Refusal> {
    for found in slack::all(&still.program.memory, still.mappings()?) {
        if !may_run(still, &(found.start + CODE..found.start + SLOTS))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Takes the contexts that the program has saved out of the code for calls in these slacks. They
/// are there if refit was killed during a call and the program has switched the thread out. Each
/// gets the registers that the code would have restored; a call that has not been made is left out.
pub(super) fn take_out_contexts(still: &Still<'_>, slacks: &[Range<u64>]) -> Result<(), Refusal> {
    let program = still.program;
    for found in slacks {
        let at = found.start + CODE..found.start + TEXT;
        let mut code = [0; RETURNING_BYTES as usize];
        if is_clear(program, &at) || program.read(at.start, &mut code).is_err() {
            continue;
        }
        let wanted = Wanted::all(std::slice::from_ref(&at));
        let SearchResult::All(saved) = contexts::saved(still, wanted)? else { continue };
        for context in saved {
            if let Some(remaining) = remaining(&code, context.counter - at.start) {
                contexts::restore(program, &context, &remaining)?;
            }
        }
    }
    Ok(())
}

/// Whether code may be run: by a task, now or when a signal handler returns, or by a thread that
/// the program has switched out. Nobody is in code that is all zeros.
fn may_run(still: &Still<'_>, code: &Range<u64>) -> Result<bool, Refusal> {
    if is_clear(still.program, code) {
        return Ok(false);
    }
    let counters = contexts::counters(still, std::slice::from_ref(code))?;
    Ok(counters.is_none_or(|counters| counters.iter().any(|counter| code.contains(counter))))
}

/// Whether the process has started another program since its memory was opened.
fn is_replaced(program: &Program) -> Result<bool, Refusal> {
    let mappings = program.mappings()?;
    let mut code = mappings.iter().filter(|mapping| mapping.readable && mapping.executable);
    Ok(code.all(|mapping| program.read(mapping.range.start, &mut [0]).is_err()))
}

fn is_clear(program: &Program, code: &Range<u64>) -> bool {
    let mut bytes = vec![0; (code.end - code.start) as usize];
    program.read(code.start, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
}

/// Zeroes the slacks whose code nobody will run.
pub(crate) fn clean(still: &Still<'_>) -> Result<(), Refusal> {
    let program = still.program;
    for found in slack::all(&program.memory, still.mappings()?) {
        if !is_clear(program, &found) && !may_run(still, &found)? {
            // The mark is zeroed in the same write, which is within one page.
            let written = program.write(found.start, &[0; slack::SIZE as usize]);
            written.map_err(|source| Refusal::System {
                id: program.id(),
                what: "remove code of refit from it",
                source,
            })?;
        }
    }
    Ok(())
}
