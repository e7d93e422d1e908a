//! Threads that a program switches by itself: contexts that it has saved in its memory, with program counters where code comes or goes.
//!
//! A handler of a signal may take the registers that the kernel has saved for it, keep them anywhere, and have another thread go on instead
//! (preemptive threads in user space). Such a context is in no frame that [`signal_frames`] finds. So where a program catches signals
//! that are used for that, all memory that it writes to is searched.
//!
//! A context looks as the kernel has left it (`struct sigcontext`): the program counter stands between a stack pointer and the flags, behind which
//! is the code segment. By that it is told from return addresses, of which some lead to where nobody returns (calls that do not come
//! back), and from addresses that a profiler has noted. What a handler has left over that has returned looks the same: to change it does no harm. Where
//! it counts whether it is in use, what is below a thread's stack pointer, or on an alternate stack that nobody is on, is not.
//!
//! While a handler takes a context from one place to another, its program counter may be in a register only. So where the search matters the
//! program is stopped when no thread is in a handler ([`stand_still`]); one that is always in one is searched all the same.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use refit_sys::maps::Mapping;
use refit_sys::pagemap::Pagemap;
use refit_sys::status::Status;

use crate::process::signal_frames::{self, PROGRAM_COUNTER, Saved};
use crate::process::{Program, Refusal, Still};
use crate::record::PAGE;

/// Memory that is searched at most, in bytes: some ten milliseconds.
const MOST: u64 = 128 << 20;
/// And most addresses whose pages are looked for.
const WIDEST: u64 = 1 << 36;
/// Below the stack pointer a function may keep something all the same.
const RED_ZONE: u64 = 128;
/// From a frame's first word to what tells of the alternate stack (`uc_stack`): its address, flags, size.
const ALTERNATE: u64 = 8 + 16;

/// How often a program is stopped until no thread is in a handler.
const TURNS: u32 = 10;
/// Between the first stop and the second; after each the pause is as much longer.
const PAUSE: Duration = Duration::from_micros(700);

/// Holds a program still, as [`Program::stand_still`] does, at a moment at which no handler has a context in its hands.
pub(crate) fn stand_still<R: Send, E: From<Refusal> + Send>(
    program: &Program,
    within: Duration,
    work: impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send,
) -> Result<(R, Duration), E> {
    let mut work = Some(work);
    for turn in 1.. {
        let (done, stood) = program.stand_still(within, |still| {
            if turn < TURNS && may_be_switching(still)? {
                return Ok(None);
            }
            let Some(work) = work.take() else { unreachable!("it is done once") };
            work(still).map(Some)
        })?;
        if let Some(done) = done {
            return Ok((done, stood));
        }
        // Lets the handler end; the next stop looks again, so no result depends on the time.
        std::thread::sleep(PAUSE * turn);
    }
    unreachable!("the last turn does the work")
}

/// Whether a thread is in a handler, and handlers may switch threads.
fn may_be_switching(still: &Still<'_>) -> Result<bool, Refusal> {
    let program = still.program();
    if !switches(program.face()) || signal_frames::is_go(still)? {
        return Ok(false);
    }
    Ok(!signal_frames::of_handlers(still, &program.mappings()?)?.is_empty())
}

/// What a search for saved contexts has come to.
#[derive(Debug)]
pub(crate) enum Found {
    /// These, in no frame of a handler that a thread is in.
    All(Vec<Saved>),
    /// There is too much memory to be searched.
    TooLarge,
}

impl Found {
    fn none() -> Self {
        Self::All(Vec::new())
    }
}

/// Saved contexts whose program counters are `wanted`, of addresses in `within`.
pub(crate) fn saved(
    still: &Still<'_>,
    within: &Range<u64>,
    wanted: impl Fn(u64) -> bool,
) -> Result<Found, Refusal> {
    let program = still.program();
    // Go's runtime does not switch goroutines in code that is not Go's.
    if !switches(program.face()) || signal_frames::is_go(still)? {
        return Ok(Found::none());
    }
    let mappings = program.mappings()?;
    let Some(places) = written(program.face(), &mappings) else { return Ok(Found::TooLarge) };
    let tops: Vec<u64> = still.positions()?.into_iter().map(|(_, stack)| stack).collect();
    let known = signal_frames::saved(still)?;
    let mut found = Vec::new();
    for place in places {
        for begin in place.clone().step_by(CHUNK) {
            let length = (place.end - begin).min(CHUNK as u64) as usize;
            let mut bytes = vec![0; length];
            if program.read(begin, &mut bytes).is_err() {
                continue;
            }
            let (words, _) = bytes.as_chunks::<8>();
            for (at, word) in (begin..).step_by(8).zip(words) {
                let counter = u64::from_le_bytes(*word);
                if within.contains(&counter) && wanted(counter) {
                    found.push(Saved { at, counter });
                }
            }
        }
    }
    found.retain(|one| !known.contains(one) && is_context(still, &mappings, one.at));
    found.retain(|one| !is_left_over(still, &mappings, &tops, one.at));
    Ok(Found::All(found))
}

/// How much is read at once: whole pages.
const CHUNK: usize = 1 << 20;

/// Whether a program catches signals that threads in user space are switched by: those of timers, those that are free for
/// programs, real-time ones.
fn switches(thread: u32) -> bool {
    let caught = Status::of(thread).ok().and_then(|status| status.set("SigCgt")).unwrap_or(0);
    let used = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGUSR1, libc::SIGUSR2];
    // The C library keeps the first two of the real-time ones for itself.
    let real_time = u64::MAX << (libc::SIGRTMIN() - 1);
    caught & used.iter().fold(real_time, |mask, signal| mask | 1 << (signal - 1)) != 0
}

/// Ranges of pages that the program has written to; `None`: too much.
fn written(thread: u32, mappings: &[Mapping]) -> Option<Vec<Range<u64>>> {
    let own = mappings.iter().filter(|one| one.readable && one.writable && !one.shared);
    let wide: u64 = own.clone().map(|one| one.range.end - one.range.start).sum();
    let pagemap = Pagemap::of(thread).ok()?;
    if wide > WIDEST {
        return None;
    }
    let (mut all, mut sum): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    for mapping in own {
        let pages = pagemap.pages(mapping.range.clone()).ok()?;
        let there = pages.iter().zip((mapping.range.start..).step_by(PAGE as usize));
        for (_, begin) in there.filter(|(page, _)| page.present() || page.swapped()) {
            sum += PAGE;
            match all.last_mut() {
                Some(last) if last.end == begin => last.end += PAGE,
                _ => all.push(begin..begin + PAGE),
            }
        }
    }
    (sum <= MOST).then_some(all)
}

/// Whether the word is the program counter of a context.
fn is_context(still: &Still<'_>, mappings: &[Mapping], at: u64) -> bool {
    /// Of the flags: those that a program may have, and those that it has always (`IF`, and the one that is reserved).
    const FLAGS: u64 = 0x003f_7fd7;
    const ALWAYS: u64 = 0x202;
    /// The code segment of 64-bit programs.
    const SEGMENT: u64 = 0x33;
    let word = |at: u64| still.program().word(at).unwrap_or(0);
    let (stack, flags, segment) = (word(at.wrapping_sub(8)), word(at + 8), word(at + 16) & 0xffff);
    let own = mappings.iter().any(|one| one.writable && one.range.contains(&stack));
    own && flags & !FLAGS == 0 && flags & ALWAYS == ALWAYS && segment == SEGMENT
}

/// Whether a word is in memory that is in use no more.
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

/// Has a saved context go on elsewhere.
pub(crate) fn put(program: &Program, context: &Saved, to: u64) -> Result<(), Refusal> {
    program.write(context.at, &to.to_le_bytes()).map_err(|source| Refusal::System {
        id: program.id(),
        what: "change a context that it has saved",
        source,
    })
}
