//! From what people ask for to sites: which functions, which bytes may change there, what must be kept.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};

use super::spec::{Do, What};
use crate::flow::{Edge, EdgeKind, Flow, Target};
use crate::functions::{Convention, Sources};
use crate::live::Live;
use crate::splice::{Action, Displaced, Site, Springboard};
use crate::{FunctionId, Module};

/// A place that a specification names, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What to call it.
    pub name: String,
    /// The function that it belongs to.
    pub function: FunctionId,
    /// Address in the file of the instruction before which something is done.
    pub address: u64,
}

/// Why a place cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSite {
    /// No instruction begins there.
    #[error("no instruction begins at {address:#x}{}", .near.map_or(String::new(), |near| format!("; one begins at {near:#x}")))]
    Inside {
        /// The address that was asked for.
        address: u64,
        /// The instruction whose bytes it is in.
        near: Option<u64>,
    },
    /// Control leaves by a conditional jump, or by a block in which nothing can be spliced.
    #[error("the function is left at {address:#x} by an instruction that sometimes goes on")]
    Exit {
        /// The block.
        address: u64,
    },
    /// The code cannot be read.
    #[error("the code at {address:#x} is not in the file")]
    NoBytes {
        /// Where.
        address: u64,
    },
}

/// What `what` names in a file; empty if nothing does.
pub fn find(module: &Module, what: &What) -> Vec<Found> {
    let entry = |id: FunctionId, offset: u64| {
        let function = module.function(id);
        let name = function.name();
        let name = if offset == 0 { name } else { format!("{name}+{offset:#x}") };
        Found { name, function: id, address: function.entry + offset }
    };
    match what {
        What::Functions(pattern) => {
            let ids = module.find(pattern).into_iter();
            // A stub only jumps on to the function of that name.
            ids.filter(|&id| !module.function(id).sources.contains(Sources::STUB))
                .map(|id| entry(id, 0))
                .collect()
        }
        What::Behind(name, offset) => {
            module.find(name).into_iter().map(|id| entry(id, *offset)).collect()
        }
        What::At(address) => {
            let function = module.function_at(*address).into_iter();
            function.map(|id| entry(id, address - module.function(id).entry)).collect()
        }
    }
}

/// The sites for a place: `bias` is added to the file's addresses, `first` is its first cell. The first site is the place itself, others
/// are where its function is left.
///
/// # Errors
/// [`NoSite`]: no instruction is there, or the function is left where nothing can be done.
pub fn sites(
    module: &Module,
    found: &Found,
    bias: u64,
    actions: &[Do],
    first: u32,
) -> Result<Vec<Site>, NoSite> {
    let flow = module.flow(found.function);
    let instruction = flow.instruction_at(found.address).ok_or_else(|| {
        let before = flow.instructions().iter().rev().find(|one| one.address < found.address);
        let near = before.filter(|one| one.end() > found.address).map(|one| one.address);
        NoSite::Inside { address: found.address, near }
    })?;
    let address = behind_mark(module, instruction.address);
    let place = Place { module, flow: &flow, function: found.function, bias };
    let (mut here, mut leaving, mut cell) = (Vec::new(), Vec::new(), first);
    for &action in actions {
        here.push(match action {
            Do::Count => Action::Count { cell },
            Do::Histogram(value) => Action::Histogram { cell, register: value.register },
            Do::Poison => Action::Poison,
            Do::Latency => {
                leaving.push(Action::Time { cell, enters: false });
                Action::Time { cell, enters: true }
            }
        });
        cell += cells(action);
    }
    let mut sites = vec![place.site(address, here)?];
    if !leaving.is_empty() {
        if actions.contains(&Do::Poison) {
            leaving.push(Action::Poison);
        }
        for exit in place.exits(address)? {
            sites.push(place.site(exit, leaving.clone())?);
        }
    }
    Ok(sites)
}

/// Sites before these instructions of a function, with the actions that `actions` says for each by its number among them; those
/// where nothing can be a site are left out.
pub fn before_each(
    module: &Module,
    flow: &Flow,
    bias: u64,
    addresses: &[u64],
    mut actions: impl FnMut(usize) -> Vec<Action>,
) -> Vec<Site> {
    let place = Place { module, flow, function: flow.function(), bias };
    let mut sites = Vec::new();
    for &address in addresses {
        let address = behind_mark(module, address);
        sites.extend(place.site(address, actions(sites.len())));
    }
    sites
}

/// How many cells an action counts into.
pub fn cells(action: Do) -> u32 {
    let action = match action {
        Do::Count => Action::Count { cell: 0 },
        Do::Histogram(value) => Action::Histogram { cell: 0, register: value.register },
        Do::Poison => Action::Poison,
        Do::Latency => Action::Time { cell: 0, enters: true },
    };
    action.cells()
}

/// A function in a program.
struct Place<'m> {
    module: &'m Module,
    flow: &'m Flow,
    function: FunctionId,
    bias: u64,
}

impl Place<'_> {
    fn site(&self, address: u64, actions: Vec<Action>) -> Result<Site, NoSite> {
        let code = (1..=32).rev().find_map(|length| self.module.bytes(address, length));
        let room = room(self.module, self.flow, self.function, address);
        // A gap is looked for only where one may be needed.
        let springboards = match room {
            0..ROOMY => springboards(self.module, address, self.bias),
            _ => Vec::new(),
        };
        Ok(Site {
            address: address.wrapping_add(self.bias),
            code: code.ok_or(NoSite::NoBytes { address })?.to_vec(),
            room,
            live: live(self.module, self.flow, self.function, address),
            actions,
            springboards,
        })
    }

    /// An instruction in each block by which the function is left, the last one that a jump can take the place of.
    fn exits(&self, entry: u64) -> Result<Vec<u64>, NoSite> {
        let mut exits = Vec::new();
        for (index, block) in self.flow.blocks().iter().enumerate() {
            let edges = self.flow.edges_from(index as u32);
            let leaves = |edge: &Edge| match edge.to {
                Target::Caller => true,
                // Calls have their own edges; a jump to another function is a call that does not come back.
                Target::Function(_) | Target::Outside(_) | Target::Elsewhere => {
                    matches!(edge.kind, EdgeKind::Jump | EdgeKind::Branch)
                }
                Target::Block(_) | Target::Unknown => false,
            };
            if !edges.iter().any(leaves) {
                continue;
            }
            let sometimes = edges.iter().any(|edge| edge.kind == EdgeKind::Fall);
            let last = self.flow.block_instructions(block).map(|one| one.address);
            let last: Vec<_> = last.filter(|&address| address != entry).collect();
            let fits = |&&address: &&u64| {
                room(self.module, self.flow, self.function, address) >= LONG
                    && self.fits_a_jump(address)
            };
            let found = last.iter().rev().find(fits).or(last.last());
            exits.push(*found.filter(|_| !sometimes).ok_or(NoSite::Exit { address: block.start })?);
        }
        Ok(exits)
    }

    /// Whether the instructions from `address` on that a jump takes the place of end where something else begins.
    fn fits_a_jump(&self, address: u64) -> bool {
        let room = room(self.module, self.flow, self.function, address);
        let code = self.module.bytes(address, room.min(32));
        let displaced = code.and_then(|code| Displaced::new(address, code, LONG).ok());
        displaced.is_some_and(|displaced| displaced.length() <= room)
    }
}

fn live(module: &Module, flow: &Flow, function: FunctionId, address: u64) -> Live {
    // Go's stacks move, and its assembly knows no dead registers.
    if module.function(function).convention == Convention::Go {
        return Live { red_zone: false, ..Live::ALL };
    }
    flow.live_before(address)
}

/// What marks the target of an indirect jump stays where it is.
fn behind_mark(module: &Module, address: u64) -> u64 {
    match decode(module, address) {
        Some(mark) if mark.code() == Code::Endbr64 => mark.next_ip(),
        _ => address,
    }
}

fn decode(module: &Module, address: u64) -> Option<Instruction> {
    let bytes = (1..=15).rev().find_map(|length| module.bytes(address, length))?;
    let found = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!found.is_invalid()).then_some(found)
}

/// Bytes from `address` on that nothing enters but at their beginning, padding behind the function's end included.
fn room(module: &Module, flow: &Flow, function: FunctionId, address: u64) -> usize {
    // Who knows where an unknown jump goes: one instruction is safe, two are not.
    let alone = flow.instruction_at(address).map_or(0, |one| usize::from(one.length));
    if is_within(flow, address) {
        return 0;
    }
    if !flow.targets_known() || is_returned_into(module, function, address) {
        return alone;
    }
    let entered = flow.edges().iter().filter(|edge| edge.kind != EdgeKind::Fall);
    let entered = entered.filter_map(|edge| match edge.to {
        Target::Block(block) => flow.blocks().get(block as usize).map(|block| block.start),
        _ => None,
    });
    let ranges = &module.function(function).ranges;
    let Some(range) = ranges.iter().find(|range| range.contains(&address)) else { return alone };
    let overlapping = flow.blocks().iter().map(|block| block.start);
    let inside = |&start: &u64| flow.instruction_at(start).is_none();
    let elsewhere = module.entered_inside(address + 1..range.end);
    let entered = entered.chain(overlapping.filter(inside)).chain(elsewhere);
    let next = entered.filter(|&start| start > address).min();
    match next.filter(|&next| next < range.end) {
        Some(next) => (next - address) as usize,
        None => {
            let behind = padding(module, range.end);
            let entered = module.entered_inside(range.end..range.end + behind as u64);
            let behind = entered.map_or(behind, |first| (first - range.end) as usize);
            (range.end - address) as usize + behind
        }
    }
}

/// Whether an instruction that begins before `address` goes on there: who jumps past its first byte runs another one, and what
/// changes the one changes both.
fn is_within(flow: &Flow, address: u64) -> bool {
    /// Bytes of the longest instruction.
    const LONGEST: u64 = 15;
    let before = flow.instructions().partition_point(|one| one.address < address);
    let near = flow.instructions()[..before].iter().rev();
    near.take_while(|one| one.address + LONGEST > address).any(|one| one.end() > address)
}

/// Whether Go returns to behind the first instruction, although it was never called from there: a goroutine begins as if
/// `runtime.goexit` had called it, whose first instruction is there for that.
fn is_returned_into(module: &Module, function: FunctionId, address: u64) -> bool {
    let function = module.function(function);
    let marked = || decode(module, address).is_some_and(|first| first.mnemonic() == Mnemonic::Nop);
    function.convention == Convention::Go && address == function.entry && marked()
}

/// Bytes from `address` on that are there to fill a gap.
fn padding(module: &Module, address: u64) -> usize {
    let mut at = address;
    while at < address + 16 && module.function_at(at).is_none() {
        match decode(module, at) {
            Some(filler) if fills(&filler) => at = filler.next_ip(),
            _ => break,
        }
    }
    (at - address) as usize
}

fn fills(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        // `xchg ax, ax`, as some assemblers fill two bytes.
        || instruction.code() == Code::Xchg_r16_AX
}

/// How far a short jump reaches, and bytes of a long one.
const NEAR: u64 = 120;
const LONG: usize = 5;
/// Where this much room is, the instructions that a jump displaces always fit.
const ROOMY: usize = 20;

/// Gaps near an address that hold a long jump.
fn springboards(module: &Module, address: u64, bias: u64) -> Vec<Springboard> {
    let mut found = Vec::new();
    let mut at = address.saturating_sub(NEAR);
    while at < address + NEAR {
        // A gap begins where a function has ended; before that, nobody knows where instructions begin.
        let begins =
            module.function_at(at).is_none() && at > 0 && module.function_at(at - 1).is_some();
        let length = if begins { padding(module, at) } else { 0 };
        // Nobody goes through it on the way from one function to the next.
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
