//! Return addresses that lead to copies ([`arrange`](crate::arrange)), when these are taken out.
//!
//! While no thread runs, its stack is walked from frame to frame ([`Rules`]), and each return
//! address that is that of a copied instruction is replaced by the address of the original.
//!
//! Other words of stacks that look like return addresses are left over from earlier calls: nobody
//! returns to them. They are not changed, since some of their bytes may be those of a variable. If
//! a walk does not reach the outermost frame (code without frame descriptions, a thread whose
//! registers are not known), return addresses may be among the other words; then the area stays.
//!
//! *Which memory is a stack.* A mapping is one if the stack pointer of a task is in it, or one that
//! the kernel has saved for a signal handler. What is below the stack pointer does not count if the
//! mapping has nothing but the stack. Other memory is searched, and so is memory of such a mapping
//! that no walk has gone through: if one of its words is the address behind a call in a copy, the
//! area stays, since this may be the stack of a coroutine. So it does if the address of a copy is
//! in a register, and if there is too much memory to search.
//!
//! A thread that unwinds its stack has return addresses elsewhere, and addresses of the tables that
//! describe a frame. So nothing is replaced while a thread is in an unwinder, or while a register,
//! or a word that is in use on a stack, is an address of the area but not of its code. Addresses of
//! lanes do not count: only code of the area has these, and leaves them below the stack pointer,
//! where a leaf function may use memory.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use refit_sys::maps::Mapping;
use refit_sys::pagemap::Pagemap;
use refit_sys::patch_area::is_area;

use crate::process::own_memory::{self, Wanted};
use crate::process::{Program, Refusal, Still, contexts, general, signal_frames};
use crate::record::Head;
use crate::rules::Rules;

/// Most bytes of code that are decoded to find the instruction before another.
const MOST_BETWEEN: u64 = 4096;

/// Why return addresses may still lead to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// A thread has one in a register, or unwinds its stack.
    InUse,
    /// One may be in a frame that is not known.
    Unknown,
    /// One is in memory that is no stack.
    Saved,
    /// There is too much memory to search.
    Large,
}

/// Takes return addresses on stacks from the copies of an area back to the originals, whose
/// addresses `back` has by those of the copies. Returns why some may be left on stacks.
///
/// # Errors
/// [`Refusal`]: a thread was killed, or memory cannot be written.
pub(crate) fn take_back(
    still: &Still<'_>,
    head: &Head,
    back: &BTreeMap<u64, u64>,
    rules: &Rules,
) -> Result<Option<Left>, Refusal> {
    let program = still.program();
    let Some(stacks) = stacks(still, still.mappings()?)? else { return Ok(Some(Left::Large)) };
    let area = head.address..head.address + head.lanes();
    if registers(still)?.is_none_or(|words| words.iter().any(|word| area.contains(word))) {
        return Ok(Some(Left::InUse));
    }
    let returns = rules.returns(still)?;
    if returns.unwinds {
        return Ok(Some(Left::InUse));
    }
    let (code, mut changes, mut left) = (head.code_range(), Vec::new(), None);
    for stack in &stacks {
        let area = std::slice::from_ref(&area);
        for (at, word) in own_memory::search(program, &stack.pages, Wanted::all(area)) {
            match back.get(&word) {
                Some(&to) if returns.slots.contains(&at) => changes.push((at, to)),
                _ if stack.is_left_over(at) => {}
                // A frame has one that cannot be taken back now, or a thread uses the tables.
                _ if returns.slots.contains(&at) || !code.contains(&word) => {
                    return Ok(Some(Left::InUse));
                }
                // It is left over from an earlier call.
                _ if returns.all && returns.has_walked(at) => {}
                found if found.is_none() && returns.all => {}
                found if found.is_some() && !is_behind_call(program, back, word) => {}
                _ if returns.all => left = Some(Left::Saved),
                _ => left = Some(Left::Unknown),
            }
        }
    }
    for (at, to) in changes {
        program.write(at, &to.to_le_bytes()).map_err(|source| Refusal::System {
            id: program.id(),
            what: "change a return address",
            source,
        })?;
    }
    Ok(left)
}

/// Returns why return addresses to the copies of an area may be left elsewhere, after
/// [`take_back`].
pub(crate) fn left(
    still: &Still<'_>,
    head: &Head,
    back: &BTreeMap<u64, u64>,
) -> Result<Option<Left>, Refusal> {
    let program = still.program();
    let mappings = still.mappings()?;
    let (within, is) = (head.code_range(), |word| back.contains_key(&word));
    let wanted = Wanted { within: std::slice::from_ref(&within), is: &is };
    let (Some(stacks), Some(found)) = (stacks(still, mappings)?, still.words(wanted)?) else {
        return Ok(Some(Left::Large));
    };
    let is_stack = |at| stacks.iter().flat_map(|stack| &stack.pages).any(|own| own.contains(&at));
    // Areas have data of their own.
    let areas: Vec<&Mapping> = mappings.iter().filter(|mapping| is_area(mapping)).collect();
    let is_own = |at| areas.iter().any(|area| area.range.contains(&at));
    let returns = |word| is_behind_call(program, back, word);
    let left = found.into_iter().any(|(at, word)| !is_stack(at) && !is_own(at) && returns(word));
    Ok(left.then_some(Left::Saved))
}

/// Whether the address of an instruction of a copy is one behind a call, as far as that is known.
fn is_behind_call(program: &Program, back: &BTreeMap<u64, u64>, address: u64) -> bool {
    // Instructions that have been added, or that stand for none of the original, are in between.
    let Some((&begin, _)) = back.range(..address).next_back() else { return true };
    let mut code = vec![0; (address - begin).min(MOST_BETWEEN) as usize];
    if program.read(begin, &mut code).is_err() {
        return true;
    }
    let last = Decoder::with_ip(64, &code, begin, DecoderOptions::NONE).into_iter().last();
    last.is_none_or(|last| {
        let calls = [FlowControl::Call, FlowControl::IndirectCall];
        last.next_ip() != address || calls.contains(&last.flow_control())
    })
}

/// A mapping that a stack is in.
struct Stack {
    /// The lowest stack pointer there.
    top: u64,
    /// Whether nothing else is below it: it is the stack that the kernel has made, or memory that
    /// nobody may access precedes it, as the C library has it.
    alone: bool,
    /// Its pages that are there.
    pages: Vec<Range<u64>>,
}

impl Stack {
    /// Whether a word is below all that is in use.
    fn is_left_over(&self, at: u64) -> bool {
        self.alone && at + contexts::RED_ZONE < self.top
    }
}

/// Returns the stacks of all tasks; `None` if there is too much of them to search.
fn stacks(still: &Still<'_>, mappings: &[Mapping]) -> Result<Option<Vec<Stack>>, Refusal> {
    let program = still.program();
    let mut tops: Vec<u64> = still.positions()?.into_iter().map(|(_, stack)| stack).collect();
    for frame in signal_frames::of_handlers(still, mappings)? {
        // The stack pointer is saved before the program counter.
        tops.extend(program.word(frame.at - 8));
    }
    tops.sort_unstable();
    let Ok(pagemap) = Pagemap::of(program.face()) else { return Ok(None) };
    let (mut all, mut sum): (Vec<Stack>, u64) = (Vec::new(), 0);
    for mapping in mappings.iter().filter(|mapping| mapping.readable && mapping.writable) {
        let Some(&top) = tops.iter().find(|top| mapping.range.contains(top)) else { continue };
        let Some(pages) = own_memory::pages(&pagemap, mapping) else { return Ok(None) };
        sum += pages.iter().map(|pages| pages.end - pages.start).sum::<u64>();
        let guards =
            |one: &Mapping| one.range.end == mapping.range.start && !(one.readable || one.writable);
        let alone = mapping.name.as_os_str() == "[stack]" || mappings.iter().any(guards);
        all.push(Stack { top, alone, pages });
    }
    Ok((sum <= own_memory::MOST).then_some(all))
}

/// Returns what all tasks have in their registers, of which vector registers are used to copy
/// memory; `None` if it is not known of some, such as one that waits for a page, maybe of these
/// tables.
fn registers(still: &Still<'_>) -> Result<Option<Vec<u64>>, Refusal> {
    let mut all = Vec::new();
    for thread in still.threads() {
        all.extend(general(&still.registers(thread)?));
        let Some(vectors) = still.vectors(thread) else { return Ok(None) };
        all.extend(vectors);
    }
    Ok(still.asleep().next().is_none().then_some(all))
}
