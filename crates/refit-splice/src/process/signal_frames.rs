//! Finds program counters that the kernel has saved on stacks, at which threads continue when
//! signal handlers return.
//!
//! The kernel's frame (`rt_sigframe`, arch/x86/include/asm/sigframe.h) begins with the address of
//! the code that calls `rt_sigreturn`, followed by a `ucontext`. So if a word of a stack is the
//! address of such code, and the code segment is where a frame has it, a saved program counter and
//! a saved stack pointer are at known distances from it. The saved stack pointer is that of the
//! interrupted stack, which may be another one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use refit_sys::maps::Mapping;

use super::find_slots::backs;
use super::program::Program;
use super::refusal::Refusal;
use super::still::{Still, general};

/// `mov rax, 15; syscall`, by which every C library on x86-64 ends a handler.
const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
/// The same in a shorter encoding: `mov eax, 15; syscall`.
const SHORT_RESTORER: [u8; 7] = [0xb8, 15, 0, 0, 0, 0x0f, 0x05];

/// Distance from the address of the restorer to the saved `rsp` and `rip`: 8, then 40 bytes of
/// `ucontext` before the registers, of which these are the 16th and 17th.
const STACK_POINTER: usize = 8 + 40 + 15 * 8;
pub(crate) const PROGRAM_COUNTER: usize = STACK_POINTER + 8;

/// Code segment of 64-bit programs: the low 16 bits of the second word behind the program counter.
pub(super) const SEGMENT: u64 = 0x33;

/// Bytes of a stack that are searched, from its pointer up.
const DEEPEST: u64 = 8 << 20;

/// A saved program counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Saved {
    /// Address of the word.
    pub(crate) at: u64,
    pub(crate) counter: u64,
}

/// Returns every saved program counter of every thread, including the return addresses of threads
/// that complete an interrupted call.
pub(crate) fn saved(still: &Still<'_>) -> Result<Vec<Saved>, Refusal> {
    let mappings = still.mappings()?;
    let mut found = of_handlers(still, mappings)?;
    let backs = backs(still.program(), mappings).into_iter();
    found.extend(backs.map(|(at, counter)| Saved { at, counter }));
    Ok(found.into_iter().collect())
}

/// Returns the saved program counters to which signal handlers return. Their places are searched
/// for once in a stop: threads may be moved to other instructions, but their stack pointers stay.
pub(crate) fn of_handlers(
    still: &Still<'_>,
    mappings: &[Mapping],
) -> Result<BTreeSet<Saved>, Refusal> {
    let program = still.program();
    let places = match still.frames.get() {
        Some(places) => places,
        None => {
            let found = search(still, mappings)?;
            still.frames.get_or_init(|| found.into_iter().map(|frame| frame.at).collect())
        }
    };
    let saved = |&at: &u64| Some(Saved { at, counter: program.word(at).ok()? });
    Ok(places.iter().filter_map(saved).collect())
}

fn search(still: &Still<'_>, mappings: &[Mapping]) -> Result<BTreeSet<Saved>, Refusal> {
    let program = still.program();
    let mut found = BTreeSet::new();
    // Most words that point to code are return addresses, and few of these are distinct.
    let mut known = BTreeMap::new();
    let mut tops = Vec::new();
    for thread in still.threads() {
        let registers = still.registers(thread)?;
        let top = top(program, registers.rip, registers.rsp);
        tops.push((registers.fs_base, top));
    }
    let asleep = still.asleep().map(|(_, waits)| top(program, waits.counter, waits.stack));
    tops.extend(asleep.map(|top| (0, top)));
    for (base, top) in tops {
        found.extend(of_stack(program, mappings, (base, top), &mut known));
    }
    Ok(found)
}

/// Whether a thread is in a signal handler and runs code of the program, rather than being in a
/// system call.
pub(crate) fn a_handler_runs(still: &Still<'_>, mappings: &[Mapping]) -> Result<bool, Refusal> {
    let program = still.program();
    let mut known = BTreeMap::new();
    for thread in still.threads() {
        let registers = still.registers(thread)?;
        let is_in_call = registers.orig_rax.cast_signed() >= 0;
        let top = (registers.fs_base, top(program, registers.rip, registers.rsp));
        if !is_in_call && !of_stack(program, mappings, top, &mut known).is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the saved program counters to which the handlers of one thread return; `base` is its
/// thread pointer, `top` where the search begins.
fn of_stack(
    program: &Program,
    mappings: &[Mapping],
    (base, top): (u64, u64),
    known: &mut BTreeMap<u64, bool>,
) -> BTreeSet<Saved> {
    let mut found = BTreeSet::new();
    // A stack may have a million words, most of which do not point to code.
    let code: Vec<&Range<u64>> =
        mappings.iter().filter(|one| one.executable).map(|one| &one.range).collect();
    let points_to_code = |word: u64| {
        let at = code.partition_point(|range| range.end <= word);
        code.get(at).is_some_and(|range| range.contains(&word))
    };
    let goroutine = goroutine(program, base, top);
    let mut stacks = vec![top];
    let mut seen = BTreeSet::new();
    while let Some(top) = stacks.pop() {
        let Some(mut end) = end_of_stack(mappings, top).filter(|_| seen.insert(top)) else {
            continue;
        };
        if let Some(own) = goroutine.clone().filter(|own| own.contains(&top)) {
            end = end.min(own.end);
        }
        let words = words(program, top, end);
        for (index, &word) in words.iter().enumerate() {
            if !points_to_code(word) || !is_restorer(program, mappings, word, known) {
                continue;
            }
            let (Some(&stack), Some(&counter)) =
                (words.get(index + STACK_POINTER / 8), words.get(index + PROGRAM_COUNTER / 8))
            else {
                continue;
            };
            // The C library has the address of that code on the stack, too, when it installs a
            // handler, and leaves it there. What lies behind it then is no frame.
            let segment = words.get(index + PROGRAM_COUNTER / 8 + 2).map(|word| word & 0xffff);
            if segment != Some(SEGMENT) {
                continue;
            }
            let at = (top & !7) + (index * 8 + PROGRAM_COUNTER) as u64;
            found.insert(Saved { at, counter });
            if !(top..end).contains(&stack) {
                stacks.push(stack);
            }
        }
    }
    found
}

/// Returns where the search of a thread's stack begins. If the thread's handler has just returned
/// to the code that ends it, the return has popped the address of that code, and the frame begins
/// one word below the stack pointer.
fn top(program: &Program, counter: u64, stack: u64) -> u64 {
    let below = stack.wrapping_sub(8);
    let ends = |at: u64| counter.wrapping_sub(at) <= RESTORER.len() as u64;
    let returned = program.word(below).is_ok_and(|word| {
        let mut code = [0; RESTORER.len()];
        ends(word) && program.read(word, &mut code).is_ok() && ends_a_handler(&code)
    });
    if returned { below } else { stack }
}

/// Whether a word is the address of code that ends a handler; `known` caches the answers.
pub(crate) fn is_restorer(
    program: &Program,
    mappings: &[Mapping],
    word: u64,
    known: &mut BTreeMap<u64, bool>,
) -> bool {
    *known.entry(word).or_insert_with(|| restores(program, mappings, word))
}

/// Whether a thread runs a goroutine.
pub(crate) fn is_go(still: &Still<'_>) -> Result<bool, Refusal> {
    for thread in still.threads() {
        let registers = still.registers(thread)?;
        if goroutine(still.program(), registers.fs_base, registers.rsp).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a handler that interrupted code at one of the wanted counters may be using this memory:
/// a register, or a word that it has on its stack, is an address there.
pub(crate) fn use_memory(
    still: &Still<'_>,
    memory: &Range<u64>,
    wanted: impl Fn(u64) -> bool,
) -> Result<bool, Refusal> {
    let program = still.program();
    let mappings = still.mappings()?;
    let mut frames = of_handlers(still, mappings)?;
    frames.retain(|frame| wanted(frame.counter));
    if frames.is_empty() {
        return Ok(false);
    }
    let mut tops = Vec::new();
    for thread in still.threads() {
        let registers = still.registers(thread)?;
        let holds = general(&registers).into_iter().any(|word| memory.contains(&word));
        tops.push((registers.rsp, holds));
    }
    // What those have in registers is not known.
    tops.extend(still.asleep().map(|(_, waits)| (waits.stack, true)));
    Ok(frames.iter().any(|frame| {
        // A handler runs on the stack on which its frame is, unless another one has interrupted it
        // on a further stack.
        let own = |top: u64| end_of_stack(mappings, top).is_some_and(|end| frame.at < end);
        let below = tops.iter().filter(|(top, _)| *top <= frame.at && own(*top));
        below.max_by_key(|(top, _)| *top).is_none_or(|&(top, holds)| {
            holds || words(program, top, frame.at).iter().any(|word| memory.contains(word))
        })
    }))
}

/// Returns the program counters of all tasks, those to which signal handlers return included.
pub(crate) fn counters(still: &Still<'_>) -> Result<Vec<u64>, Refusal> {
    let positions = still.positions()?.into_iter().map(|(counter, _)| counter);
    Ok(positions.chain(saved(still)?.iter().map(|frame| frame.counter)).collect())
}

fn end_of_stack(mappings: &[Mapping], top: u64) -> Option<u64> {
    let mapping = mappings.iter().find(|mapping| mapping.range.contains(&top))?;
    Some(mapping.range.end.min(top.saturating_add(DEEPEST)))
}

/// Returns the stack of the goroutine that a thread runs, or of Go's runtime: the stacks of many
/// lie side by side, with frames of handlers that returned long ago. Go keeps the address of its
/// `g` before the thread pointer (`runtime·tlsg`), and the first words of the `g` delimit its
/// stack. In other programs the words there do not enclose the stack pointer.
fn goroutine(program: &Program, thread_pointer: u64, top: u64) -> Option<Range<u64>> {
    let word = |at: u64| program.word(at).ok();
    let g = word(thread_pointer.checked_sub(8)?).filter(|g| *g != 0 && g % 8 == 0)?;
    let own = word(g)?..word(g.checked_add(8)?)?;
    (own.contains(&top) && own.end - own.start <= DEEPEST).then_some(own)
}

fn words(program: &Program, top: u64, end: u64) -> Vec<u64> {
    let top = top & !7;
    let mut bytes = vec![0; usize::try_from(end - top).unwrap_or(0) & !7];
    if program.read(top, &mut bytes).is_err() {
        return Vec::new();
    }
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect()
}

/// Whether the word is the address of code that ends a handler. A mistake does no harm: the saved
/// word is changed only if it is the address of a byte that is removed.
fn restores(program: &Program, mappings: &[Mapping], word: u64) -> bool {
    let at = mappings.partition_point(|mapping| mapping.range.end <= word);
    let code =
        mappings.get(at).is_some_and(|mapping| mapping.executable && mapping.range.contains(&word));
    let mut bytes = [0; RESTORER.len()];
    code && program.read(word, &mut bytes).is_ok() && ends_a_handler(&bytes)
}

/// Whether this is the code that ends a handler. Unwinders recognise it by its bytes, too.
pub(crate) fn ends_a_handler(code: &[u8]) -> bool {
    code.starts_with(&RESTORER) || code.starts_with(&SHORT_RESTORER)
}
