//! Finds saved contexts whose program counters are in code that is added or removed. A program that
//! switches threads in user space saves such contexts in its own memory.
//!
//! A signal handler may take the registers that the kernel saved for it, keep them anywhere, and
//! resume another thread instead (preemptive threads in user space). Such a context is in no frame
//! that [`signal_frames`] finds. So if a program catches signals that are used for this, all memory
//! that it writes to is searched.
//!
//! A context looks as the kernel left it (`struct sigcontext`): the program counter lies between a
//! stack pointer and the flags, and the code segment follows the flags. This distinguishes contexts
//! from return addresses, some of which (those after calls that never return) may be in bytes that
//! change, and from addresses that a profiler recorded. The remains of a handler that has returned
//! look the same; changing them does no harm. When the question is whether a context is in use,
//! memory below a thread's stack pointer does not count, nor does an alternate stack that no thread
//! is on.
//!
//! While a handler copies a context, its program counter may be in a register only. So where the
//! result matters, [`stand_still`] stops the program at a moment at which no thread is in a
//! handler. A thread that waits in a system call of its handler is not copying a context, so after
//! some attempts that find such threads only, the search is done nevertheless. A thread that runs
//! in a handler may just lack a processor, so attempts go on; when [`HANDLERS_TIMEOUT`] has passed,
//! the search is done, and [`Still::is_switching`] says that it may have missed a context.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_sys::maps::Mapping;
use refit_sys::status::Status;
use refit_sys::trace::Remaining;

use super::own_memory::Wanted;
use super::program::Program;
use super::refusal::Refusal;
use super::searched::Searched;
use super::signal_frames::{self, PROGRAM_COUNTER, SEGMENT, Saved};
use super::still::Still;

/// Bytes below the stack pointer that a function may still use.
pub(crate) const RED_ZONE: u64 = 128;
/// Offset of the description of the alternate stack (`uc_stack`: address, flags, size) from a
/// frame's first word.
const ALTERNATE: u64 = 8 + 16;

/// Number of stops, one after the other, that find threads in handlers only where these wait in
/// system calls, after which the search is done nevertheless.
const TURNS: u32 = 10;
/// Pause between the first and the second stop; after the nth stop it is n times as long, up to
/// [`TURNS`] times.
const PAUSE: Duration = Duration::from_micros(700);
/// Longest search for a moment at which no thread runs in a handler.
const HANDLERS_TIMEOUT: Duration = Duration::from_secs(2);

/// The threads in signal handlers of a stopped program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handlers {
    /// There are none, or handlers of this program switch no threads.
    None,
    /// All of them wait in system calls.
    Wait,
    /// Some run code of the program.
    Run,
}

/// Stops a program, as [`Program::stand_still`] does, at a moment at which no handler holds a
/// context in registers. What was searched before need not be searched while it is stopped.
pub(crate) fn stand_still<R: Send, E: From<Refusal> + Send>(
    program: &Program,
    within: Duration,
    searched: Option<&Arc<Searched>>,
    work: impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send,
) -> Result<(R, Duration), E> {
    let mut work = Some(work);
    let began = Instant::now();
    // Stops since the last one that found a thread running in a handler.
    let mut waiting = 0;
    for turn in 1.. {
        let (done, stood) = program.stand_still(within, |still| {
            let handlers = handlers(still)?;
            waiting = if handlers == Handlers::Run { 0 } else { waiting + 1 };
            let is_last = began.elapsed() >= HANDLERS_TIMEOUT;
            if handlers != Handlers::None && waiting < TURNS && !is_last {
                return Ok(None);
            }
            still.is_switching = handlers == Handlers::Run;
            still.searched = searched.cloned();
            let Some(work) = work.take() else { unreachable!("it is done once") };
            work(still).map(Some)
        })?;
        if let Some(done) = done {
            return Ok((done, stood));
        }
        // Lets the handler end; the next stop looks again, so no result depends on the time.
        std::thread::sleep(PAUSE * turn.min(TURNS));
    }
    unreachable!("the last turn does the work")
}

/// Returns whether threads are in handlers that may switch threads.
fn handlers(still: &Still<'_>) -> Result<Handlers, Refusal> {
    let program = still.program();
    if !switches(program) || signal_frames::is_go(still)? {
        return Ok(Handlers::None);
    }
    let mappings = still.mappings()?;
    if signal_frames::of_handlers(still, mappings)?.is_empty() {
        return Ok(Handlers::None);
    }
    let runs = signal_frames::a_handler_runs(still, mappings)?;
    Ok(if runs { Handlers::Run } else { Handlers::Wait })
}

/// Result of a search for saved contexts.
#[derive(Debug)]
pub(crate) enum SearchResult {
    /// The contexts that are in no frame of a running handler.
    All(Vec<Saved>),
    /// There is too much memory to search.
    TooLarge,
}

impl SearchResult {
    fn none() -> Self {
        Self::All(Vec::new())
    }
}

/// Finds saved contexts whose program counters are wanted.
pub(crate) fn saved(still: &Still<'_>, wanted: Wanted<'_>) -> Result<SearchResult, Refusal> {
    let program = still.program();
    // Go's runtime switches goroutines in Go's code only.
    if !switches(program) || signal_frames::is_go(still)? {
        return Ok(SearchResult::none());
    }
    let mappings = still.mappings()?;
    let Some(found) = still.words(wanted)? else {
        return Ok(SearchResult::TooLarge);
    };
    let tops: Vec<u64> = still.positions()?.into_iter().map(|(_, stack)| stack).collect();
    let known = signal_frames::saved(still)?;
    let mut found: Vec<Saved> =
        found.into_iter().map(|(at, counter)| Saved { at, counter }).collect();
    found.retain(|one| !known.contains(one) && is_context(still, mappings, one.at));
    found.retain(|one| !is_left_over(still, mappings, &tops, one.at));
    Ok(SearchResult::All(found))
}

/// Returns the program counters in these ranges: of all tasks, those to which signal handlers
/// return, and those of saved contexts. `None` if there is too much memory to search.
pub(super) fn counters(
    still: &Still<'_>,
    ranges: &[Range<u64>],
) -> Result<Option<Vec<u64>>, Refusal> {
    if ranges.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let wanted = Wanted::all(ranges);
    let SearchResult::All(found) = saved(still, wanted)? else { return Ok(None) };
    let mut all = signal_frames::counters(still)?;
    all.retain(|&counter| wanted.has(counter));
    all.extend(found.into_iter().map(|one| one.counter));
    Ok(Some(all))
}

/// Whether a program catches signals that switch threads in user space: those of timers, those free
/// for programs, real-time ones.
pub(crate) fn switches(program: &Program) -> bool {
    let caught =
        Status::of(program.face()).ok().and_then(|status| status.set("SigCgt")).unwrap_or(0);
    let used = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGUSR1, libc::SIGUSR2];
    // The C library reserves the first two real-time signals.
    let real_time = u64::MAX << (libc::SIGRTMIN() - 1);
    caught & used.iter().fold(real_time, |mask, signal| mask | 1 << (signal - 1)) != 0
}

/// Whether the word at `at` is the program counter of a context.
fn is_context(still: &Still<'_>, mappings: &[Mapping], at: u64) -> bool {
    /// Flags that a program may have set, and those that are always set (`IF`, and the reserved
    /// one).
    const FLAGS: u64 = 0x003f_7fd7;
    const ALWAYS: u64 = 0x202;
    let word = |at: u64| still.program().word(at).unwrap_or(0);
    let (stack, flags, segment) = (word(at.wrapping_sub(8)), word(at + 8), word(at + 16) & 0xffff);
    let own = mappings.iter().any(|one| one.writable && one.range.contains(&stack));
    own && flags & !FLAGS == 0 && flags & ALWAYS == ALWAYS && segment == SEGMENT
}

/// Whether a word is in memory that is no longer in use.
fn is_left_over(still: &Still<'_>, mappings: &[Mapping], tops: &[u64], at: u64) -> bool {
    let own = mappings.iter().find(|mapping| mapping.range.contains(&at));
    let below = |mapping: &Mapping| {
        let mut here = tops.iter().filter(|top| mapping.range.contains(top)).peekable();
        here.peek().is_some() && here.all(|&top| at < top - RED_ZONE)
    };
    if own.is_some_and(below) {
        return true;
    }
    let program = still.program();
    let Some(frame) = at.checked_sub(PROGRAM_COUNTER as u64) else { return false };
    let word = |offset: u64| program.word(frame + offset).unwrap_or(0);
    let mut seen = BTreeMap::new();
    if !signal_frames::is_restorer(program, mappings, word(0), &mut seen) {
        return false;
    }
    let alternate = word(ALTERNATE)..word(ALTERNATE).saturating_add(word(ALTERNATE + 16));
    let on = |top: &u64| alternate.contains(top) && *top <= at;
    alternate.contains(&at) && !tops.iter().any(on)
}

/// Indices, among the words of `struct sigcontext`, of the registers that a call restores, in the
/// order of [`Remaining::registers`], and of the program counter.
const RESTORED: [usize; 9] = [13, 14, 12, 9, 8, 0, 1, 2, 3];
const COUNTER: usize = 16;

/// Lets a saved context continue after a call. A context whose registers are not those of a thread
/// at that instruction is something else, and stays as it is.
pub(super) fn restore(
    program: &Program,
    context: &Saved,
    remaining: &Remaining,
) -> Result<(), Refusal> {
    let begin = context.at - COUNTER as u64 * 8;
    let mut words = [[0; 8]; COUNTER + 1];
    if program.read(begin, words.as_flattened_mut()).is_err() {
        return Ok(());
    }
    for (number, (index, value)) in RESTORED.into_iter().zip(remaining.registers).enumerate() {
        let value = value.to_le_bytes();
        if number < remaining.restored && words[index] != value {
            return Ok(());
        }
        words[index] = value;
    }
    words[COUNTER] = remaining.counter.to_le_bytes();
    // In one write: refit may be killed, and a context with a part of the registers is worthless.
    write(program, begin, words.as_flattened())
}

/// Changes the program counter of a saved context.
pub(crate) fn put(program: &Program, context: &Saved, to: u64) -> Result<(), Refusal> {
    write(program, context.at, &to.to_le_bytes())
}

fn write(program: &Program, at: u64, bytes: &[u8]) -> Result<(), Refusal> {
    program.write(at, bytes).map_err(|source| Refusal::System {
        id: program.id(),
        what: "change a context that it has saved",
        source,
    })
}
