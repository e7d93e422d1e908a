//! Sites in a function: finds the bytes that may change there, and the registers to preserve.

use std::ops::Range;
use std::sync::Arc;

use iced_x86::Instruction;
use refit_analysis::beginning::Beginning;
use refit_analysis::flow::{EdgeKind, Flow, Marks, Target, constant_read};
use refit_analysis::functions::Convention;
use refit_analysis::live::Live;
use refit_analysis::{FunctionId, Module};
use refit_splice::{At, Body, Displaced, Procedures, Site, Springboard, Step};
use refit_sys::memory::PAGE_SIZE_U64;

use crate::body::body;
use crate::code::{behind_mark, decode, entered_inside, fills, padding};
use crate::sequences::Sequences;
use crate::tails::Frame;

/// Why a place cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSite {
    /// No instruction begins there.
    #[error("no instruction begins at {address:#x}{}", .near.map_or(String::new(), |near| format!("; one begins at {near:#x}")))]
    Inside {
        /// Address that was asked for.
        address: u64,
        /// Address of the instruction that contains it.
        near: Option<u64>,
    },
    /// The function jumps to its own entry.
    #[error(
        "a loop jumps back to the entry of the function, and the function cannot be copied to distinguish iterations from calls"
    )]
    Loop {
        /// Address of the entry.
        address: u64,
    },
    /// Only a copy of the function allows it, and the function holds a restartable sequence.
    #[error(
        "splicing there needs a copy of the whole function or a change of a restartable sequence (rseq, at {address:#x}), which the kernel restarts only where it is"
    )]
    Sequence {
        /// Address of the first instruction of the sequence.
        address: u64,
    },
    /// The code cannot be read.
    #[error("the code at {address:#x} is not in the file")]
    NoBytes {
        /// Address of the code.
        address: u64,
    },
}

/// Returns sites before these instructions of a function, with the steps that `actions` returns for
/// the number of each site; instructions that cannot be sites are left out.
pub fn before_each(
    module: &Module,
    function: FunctionId,
    bias: u64,
    addresses: &[u64],
    mut actions: impl FnMut(usize) -> Vec<Step>,
) -> Vec<Site> {
    let place = Place::new(module, function, bias);
    let mut sites = Vec::new();
    for &address in addresses {
        let address = behind_mark(module, address);
        sites.extend(place.site(address, At::Before, actions(sites.len())));
    }
    sites
}

/// A function in a program, in which sites can be placed.
#[derive(Debug)]
pub struct Place<'m> {
    pub(crate) module: &'m Module,
    flow: Flow,
    pub(crate) function: FunctionId,
    bias: u64,
    /// Addresses at which control enters other than by falling through, ascending.
    entered: Vec<u64>,
    /// Ranges of its bytes that it reads as data.
    read: Vec<Range<u64>>,
    /// Its restartable sequences.
    sequences: Sequences,
    /// The whole function, if it can be copied.
    body: Option<Arc<Body>>,
    procedures: Arc<Procedures>,
}

impl<'m> Place<'m> {
    /// Prepares a function that is mapped `bias` bytes from its address in the file.
    pub fn new(module: &'m Module, function: FunctionId, bias: u64) -> Self {
        let place = Self::in_place(module, function, bias);
        // The dead bytes of a copied function may have changed, so they must not hold constants.
        let copyable = place.read.is_empty() && place.sequences.first().is_none();
        let body = copyable.then(|| body(module, &place.flow, bias, &place.procedures)).flatten();
        Self { body: body.map(Arc::new), ..place }
    }

    /// Prepares it for sites that are spliced in place or not at all.
    pub fn in_place(module: &'m Module, function: FunctionId, bias: u64) -> Self {
        let flow = module.flow(function);
        let mut entered: Vec<u64> = flow.entered().collect();
        let sequences = Sequences::of(module, &flow);
        entered.extend(resumed(module, &flow));
        entered.extend(sequences.entered());
        entered.sort_unstable();
        entered.dedup();
        let read = read(module, &flow);
        let procedures = Arc::new(procedures(module, function, bias, u64::MAX));
        Self { module, flow, function, bias, entered, read, sequences, body: None, procedures }
    }

    /// Returns the whole function, if it can be copied.
    pub fn body(&self) -> Option<&Arc<Body>> {
        self.body.as_ref()
    }

    /// Returns its control flow.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Returns where the frame of the function is at one of its instructions
    /// ([`Procedures::frame`]).
    pub(crate) fn frame(&self, address: u64) -> Option<Frame> {
        self.procedures.frame(address.wrapping_add(self.bias))
    }

    /// Returns a site at one of its instructions, by its address in the file.
    ///
    /// # Errors
    /// [`NoSite::NoBytes`] or [`NoSite::Sequence`].
    pub fn site(&self, address: u64, at: At, actions: Vec<Step>) -> Result<Site, NoSite> {
        let code = (1..=CODE).rev().find_map(|length| self.module.bytes(address, length));
        if let Some(sequence) = self.sequences.first()
            && !(at == At::Before && self.fits_a_jump(address))
        {
            return Err(NoSite::Sequence { address: sequence });
        }
        let room = self.room(address);
        // Gaps are searched only where one may be needed.
        let springboards = match room {
            0..ROOMY => springboards(self.module, address, self.bias),
            _ => Vec::new(),
        };
        Ok(Site {
            address: address.wrapping_add(self.bias),
            at,
            code: code.ok_or(NoSite::NoBytes { address })?.to_vec(),
            room,
            alone: self.is_alone(address),
            live: self.live(address),
            actions,
            springboards,
            function: self.body.clone(),
            procedures: Arc::clone(&self.procedures),
        })
    }

    fn live(&self, address: u64) -> Live {
        // Go's stacks move, and its assembly knows no dead registers.
        if self.module.function(self.function).convention == Convention::Go {
            return Live { red_zone: false, ..Live::ALL };
        }
        // The flow does not contain the kernel's way to an abort handler.
        let seen = self.sequences.first().is_none();
        if seen { self.flow.live_before(address) } else { Live::ALL }
    }

    /// Whether the function itself jumps to its entry; `address` is its first instruction that can
    /// be a site.
    pub(crate) fn is_turned_to(&self, address: u64) -> bool {
        let entry = self.module.function(self.function).entry;
        address == behind_mark(self.module, entry)
            && self.flow.edges().iter().any(|edge| match edge.to {
                Target::Block(block) if edge.kind != EdgeKind::Fall => {
                    let block = self.flow.blocks().get(block as usize);
                    block.is_some_and(|block| [entry, address].contains(&block.start))
                }
                _ => false,
            })
    }

    /// Returns the addresses, other than its entry, at which other code enters the function.
    pub(crate) fn other_entries(&self) -> Vec<u64> {
        let function = self.module.function(self.function);
        let all = entered_inside(self.module, function);
        let entries = all.filter(|&inner| inner != function.entry);
        let known = entries.filter(|&inner| self.flow.instruction_at(inner).is_some());
        known.map(|inner| behind_mark(self.module, inner)).collect()
    }

    /// Whether a jump fits at `address`: the instructions that it replaces are within the room, and
    /// can run elsewhere.
    pub(crate) fn fits_a_jump(&self, address: u64) -> bool {
        let room = self.room(address);
        if room < LONG {
            return false;
        }
        let code = self.module.bytes(address, room.min(32));
        let displaced = code.and_then(|code| Displaced::new(address, code, LONG).ok());
        displaced.is_some_and(|displaced| displaced.length() <= room)
    }

    /// Whether a site at `address` has room: there, or in a copy of the function.
    pub(crate) fn has_room(&self, address: u64) -> bool {
        self.body.is_some() || self.fits_a_jump(address)
    }

    /// Whether, as far as is known, control may arrive at any instruction after the one at
    /// `address`.
    fn is_alone(&self, address: u64) -> bool {
        !self.flow.targets_known() || is_returned_into(self.module, self.function, address)
    }

    /// Counts the bytes from `address` on that control enters only at `address`, and that no
    /// instruction reads. Padding after the end of the function is included.
    fn room(&self, address: u64) -> usize {
        let room = self.unentered(address);
        let changed = address..address + room as u64;
        let read =
            self.read.iter().filter(|read| read.start < changed.end && changed.start < read.end);
        let first = read.map(|read| read.start.saturating_sub(address) as usize).min();
        first.unwrap_or(room)
    }

    fn unentered(&self, address: u64) -> usize {
        let Self { module, ref flow, function, .. } = *self;
        // An unknown jump may lead to any instruction, so only one instruction can be replaced
        // safely.
        let alone = flow.instruction_at(address).map_or(0, |one| usize::from(one.length));
        let ranges = &module.function(function).ranges;
        // The code of another function is not changed for this one.
        let Some(range) = ranges.iter().find(|range| range.contains(&address)) else { return 0 };
        if is_within(flow, address) || self.sequences.contain(address) {
            return 0;
        }
        if self.is_alone(address) {
            return alone;
        }
        let next = self.entered.partition_point(|&start| start <= address);
        let next = self.entered.get(next).copied();
        let next = next.into_iter().chain(module.entered_inside(address + 1..range.end)).min();
        let known = self.known_from(address, range.end);
        match next.filter(|&next| next <= known && next < range.end) {
            Some(next) => (next - address) as usize,
            None if known < range.end => (known - address) as usize,
            None => (range.end - address) as usize + free_behind(module, range.end),
        }
    }

    /// Returns the address up to which there are instructions of the function from `address` on,
    /// and padding. What follows may be another function that nothing names: hand-written code
    /// has neither symbols nor frame descriptions where its author saw no need.
    fn known_from(&self, address: u64, end: u64) -> u64 {
        let mut at = address;
        while at < end.min(address + CODE as u64) {
            let own = self.flow.instruction_at(at).map(|one| one.end());
            let filler = || decode(self.module, at).filter(fills).map(|filler| filler.next_ip());
            match own.or_else(filler) {
                Some(next) => at = next,
                None => return at,
            }
        }
        end
    }
}

/// Counts the bytes of padding from the end of a function on that nothing enters.
fn free_behind(module: &Module, end: u64) -> usize {
    let behind = padding(module, end);
    let entered = module.entered_inside(end..end + behind as u64);
    entered.map_or(behind, |first| (first - end) as usize)
}

/// Returns a site at the entry of a function, where it is known without analysing the function that
/// a jump fits there. If several sites are in the function, it may have to be copied; so this is
/// for functions with one site only.
pub(crate) fn at_entry(
    module: &Module,
    function: FunctionId,
    bias: u64,
    actions: &[Step],
) -> Option<Site> {
    let Beginning { room, live } = module.beginning(function)?;
    let address = behind_mark(module, module.function(function).entry);
    let end = module.function(function).ranges.first()?.end;
    let mut room = usize::from(room);
    if address + room as u64 == end {
        room += free_behind(module, end);
    }
    let code = module.bytes(address, CODE).filter(|_| room >= LONG)?;
    let displaced = Displaced::new(address, &code[..room.min(CODE)], LONG).ok()?;
    let in_page = address % PAGE_SIZE_U64 + LONG as u64 <= PAGE_SIZE_U64;
    (displaced.length() <= room && in_page).then(|| Site {
        address: address.wrapping_add(bias),
        at: At::Before,
        code: code.to_vec(),
        room,
        alone: false,
        live,
        actions: actions.to_vec(),
        springboards: Vec::new(),
        function: None,
        procedures: Arc::new(procedures(module, function, bias, address + CODE as u64)),
    })
}

/// Returns a function as unwinders know it in a program, as far as it is before `end` in its file.
fn procedures(module: &Module, function: FunctionId, bias: u64, end: u64) -> Procedures {
    let function = module.function(function);
    let image = module.image();
    let mut parts = Vec::with_capacity(function.ranges.len());
    for range in function.ranges.iter().filter(|range| range.start < end) {
        // Most ranges have one description; hand-written code may have several, with gaps.
        let frames = image.frames();
        let first = frames.partition_point(|frame| frame.addresses.end <= range.start);
        let own = frames[first..].iter().take_while(|frame| frame.addresses.start < range.end);
        let own = own.take_while(|frame| frame.addresses.start < end);
        let found = own.filter_map(|frame| image.procedure_until(frame.addresses.start, end));
        parts.extend(found.map(|procedure| procedure.moved(bias)));
    }
    Procedures { name: function.name(), parts }
}

/// Returns ranges of a function's code that its instructions read as data.
fn read(module: &Module, flow: &Flow) -> Vec<Range<u64>> {
    let code = &module.function(flow.function()).ranges;
    let read = |address: u64| constant_read(&decode(module, address)?, code);
    flow.instructions().iter().filter_map(|one| read(one.address)).collect()
}

/// Whether an instruction that begins before `address` extends beyond it: a jump past its first
/// byte runs another instruction, and changing one changes both.
fn is_within(flow: &Flow, address: u64) -> bool {
    /// Length in bytes of the longest instruction.
    const LONGEST: u64 = 15;
    let before = flow.instructions().partition_point(|one| one.address < address);
    let near = flow.instructions()[..before].iter().rev();
    near.take_while(|one| one.address + LONGEST > address).any(|one| one.end() > address)
}

/// Whether Go code returns to the address after the first instruction although no call precedes
/// it. A goroutine begins as if `runtime.goexit` had called it, and the first instruction of that
/// function exists for this purpose.
fn is_returned_into(module: &Module, function: FunctionId, address: u64) -> bool {
    let function = module.function(function);
    function.convention == Convention::Go
        && address == function.entry
        && function.name() == "runtime.goexit"
}

/// Returns where Go's runtime resumes a function after recovering from a panic: at its call of
/// `runtime.deferreturn`.
fn resumed(module: &Module, flow: &Flow) -> Vec<u64> {
    if module.function(flow.function()).convention != Convention::Go {
        return Vec::new();
    }
    let calls = flow.instructions().iter().filter(|one| one.marks.contains(Marks::CALL));
    let resumes = |address: &u64| {
        let call = decode(module, *address).filter(Instruction::is_call_near);
        let called = call.and_then(|call| module.entered_at(call.near_branch_target()));
        called.is_some_and(|function| function.name() == "runtime.deferreturn")
    };
    calls.map(|one| one.address).filter(resumes).collect()
}

/// Reach in bytes of a short jump, and length of a long one.
const NEAR: u64 = 120;
const LONG: usize = 5;
/// Number of bytes that are examined at a site: more than a jump ever displaces.
const CODE: usize = 32;
/// Room in bytes in which the instructions that a jump displaces always fit.
const ROOMY: usize = 20;

/// Returns gaps near an address that can hold a long jump.
fn springboards(module: &Module, address: u64, bias: u64) -> Vec<Springboard> {
    let mut found = Vec::new();
    let mut at = address.saturating_sub(NEAR);
    while at < address + NEAR {
        // A gap begins where a function ends; elsewhere it is unknown where instructions begin.
        if let Some(function) = module.function_at(at) {
            let ranges = &module.function(function).ranges;
            at = ranges.iter().find(|range| range.contains(&at)).map_or(at + 1, |range| range.end);
            continue;
        }
        let begins = at > 0 && module.function_at(at - 1).is_some();
        let length = if begins { padding(module, at) } else { 0 };
        // Control must not pass through the gap on its way from one function to the next.
        let entered = module.entered_inside(at..at + length as u64).is_some();
        if length < LONG || entered {
            at += 1;
            continue;
        }
        for place in (at..=at + (length - LONG) as u64).step_by(LONG) {
            let code = module.bytes(place, LONG).and_then(|bytes| bytes.try_into().ok());
            found.extend(code.map(|code| Springboard { address: place.wrapping_add(bias), code }));
        }
        at += length as u64;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginnings that are kept have to be those that an analysis of each function finds.
    #[test]
    fn what_is_known_of_entries_is_what_an_analysis_finds() {
        const BIAS: u64 = 0x5555_5555_4000;
        let (mut known, mut all) = (0, 0);
        for file in ["/bin/bash", "/bin/tar", "/usr/bin/perl"] {
            let module = Module::open(file).expect("a program");
            for number in 0..module.functions().len() as u32 {
                let function = FunctionId(number);
                all += 1;
                let Some(site) = at_entry(&module, function, BIAS, &[]) else { continue };
                known += 1;
                let place = Place::new(&module, function, BIAS);
                let address = behind_mark(&module, module.function(function).entry);
                let found = place.site(address, At::Before, Vec::new()).expect("a site");
                let facts = |site: &Site| (site.address, site.live, site.alone, site.code.clone());
                assert_eq!(facts(&site), facts(&found), "{file}: {address:#x}");
                assert!(site.room.min(CODE) <= found.room.min(CODE), "{file}: {address:#x}");
                let displaced = Displaced::new(address, &site.code, LONG).expect("instructions");
                for at in site.address..site.address + displaced.length() as u64 {
                    let (short, whole) = (&site.procedures, &found.procedures);
                    assert_eq!(short.frame(at), whole.frame(at), "{file}: {at:#x}");
                }
            }
        }
        assert!(known * 10 > all * 7, "{known} of {all}");
    }
}
