//! A function whose versions are made: its instructions at their addresses in the program.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use refit_analysis::flow::{EdgeKind, Flow, Marks, Target, imported};
use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_optimize::eligible::calls_can_move;
use refit_probe::code::decode;
use refit_probe::sites::Place;
use refit_splice::{At, Body, Site};

use crate::error::NoVersion;
use crate::set::Set;

/// Maximum number of instructions of a function of which versions are made.
const MOST: usize = 20_000;

/// A function.
#[derive(Debug)]
pub struct Code {
    /// Its blocks, by ascending address.
    pub blocks: Vec<Block>,
    /// Index of the block at its entry.
    pub entry: usize,
    /// The blocks by their addresses.
    starts: BTreeMap<u64, usize>,
    live: BTreeMap<u64, Set>,
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The address of its first instruction.
    pub start: u64,
    /// Its instructions.
    pub members: Vec<Member>,
    /// Whether it can run in a version.
    pub copies: bool,
    /// Whether a call returns to its beginning.
    pub returned_to: bool,
    /// Whether the call at its end, if there is one, may return.
    pub returns: bool,
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The instruction, at its address in the program.
    pub instruction: Instruction,
    /// Registers and flags that the function may read from here on.
    pub live: Set,
    /// Registers that unwinders read here, or the code to which they go.
    pub unwinding: Set,
    /// For a call, whether the called function surely preserves the registers that the ABI says.
    pub preserves: bool,
}

impl Member {
    /// Whether it is a call.
    pub fn is_call(&self) -> bool {
        let flow = self.instruction.flow_control();
        matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
    }
}

impl Code {
    /// Reads a function of a file that is mapped `bias` bytes from its addresses.
    ///
    /// # Errors
    /// [`NoVersion`].
    pub fn new(place: &Place<'_>, module: &Module, bias: u64) -> Result<Self, NoVersion> {
        let flow = place.flow();
        let body = place.body().ok_or(NoVersion::Uncopied)?;
        if !calls_can_move(module, flow) {
            return Err(NoVersion::Callers);
        }
        if flow.edges().iter().any(|edge| edge.kind == EdgeKind::Call) {
            return Err(NoVersion::Uncopied);
        }
        let count = flow.instructions().len();
        if count > MOST {
            return Err(NoVersion::Large { instructions: count, most: MOST });
        }
        let reader = Reader { module, flow, body, bias };
        let blocks: Vec<Block> =
            (0..flow.blocks().len()).map(|at| reader.block(at)).collect::<Result<_, _>>()?;
        let starts: BTreeMap<u64, usize> =
            blocks.iter().enumerate().map(|(at, block)| (block.start, at)).collect();
        let members = blocks.iter().flat_map(|block| &block.members);
        let live = members.map(|one| (one.instruction.ip(), one.live)).collect();
        let entry = *starts.get(&body.entry).ok_or(NoVersion::Uncopied)?;
        if blocks.len() != starts.len() {
            return Err(NoVersion::Uncopied);
        }
        Ok(Self { blocks, entry, starts, live })
    }

    /// Returns the block at an address that can run in a version.
    pub fn block_at(&self, address: u64) -> Option<usize> {
        self.starts.get(&address).copied().filter(|&at| self.blocks[at].copies)
    }

    /// Returns what the program may read from an address on.
    pub fn live_at(&self, address: u64) -> Set {
        self.live.get(&address).copied().unwrap_or(Set::ALL)
    }

    /// Returns what the program may read from an address on to which control goes from a block. At
    /// an address of another function it is what is live at the jump.
    pub fn live_on_way(&self, block: usize, address: u64) -> Set {
        let last = self.blocks[block].members.last();
        let jump = last.filter(|last| {
            let code = last.instruction.code();
            code.is_jcc_short_or_near() || code.is_jmp_short_or_near()
        });
        let at_jump = jump.map_or(Set::ALL, |jump| jump.live);
        self.live.get(&address).copied().unwrap_or(at_jump)
    }

    /// Returns the number of its instructions.
    pub fn instructions(&self) -> usize {
        self.blocks.iter().map(|block| block.members.len()).sum()
    }
}

struct Reader<'a> {
    module: &'a Module,
    flow: &'a Flow,
    body: &'a Body,
    bias: u64,
}

impl Reader<'_> {
    fn block(&self, at: usize) -> Result<Block, NoVersion> {
        let known = &self.flow.blocks()[at];
        let mut members = Vec::new();
        let mut copies = true;
        for one in self.flow.block_instructions(known) {
            let fixed = [Marks::OVERLAPPED, Marks::SYSCALL, Marks::TRAP];
            copies &= !fixed.iter().any(|&mark| one.marks.contains(mark));
            let member = self.member(one.address)?;
            copies &= !stays(&member.instruction);
            members.push(member);
        }
        copies &= members.windows(2).all(|two| {
            two[0].instruction.next_ip() == two[1].instruction.ip() && !two[0].is_call()
        });
        let returned_to = self
            .flow
            .edges()
            .iter()
            .any(|edge| edge.kind == EdgeKind::Return && edge.to == Target::Block(at as u32));
        let mut own = self.flow.edges_from(at as u32).iter();
        let returns = own.any(|edge| edge.kind == EdgeKind::Return);
        let start = known.start.wrapping_add(self.bias);
        Ok(Block { start, returns, copies: copies && !members.is_empty(), members, returned_to })
    }

    fn member(&self, address: u64) -> Result<Member, NoVersion> {
        let moved = address.wrapping_add(self.bias);
        let mut instruction =
            decode(self.module, address).ok_or(NoVersion::NoCode { address: moved })?;
        let preserves = self.preserves(&instruction);
        if instruction.is_ip_rel_memory_operand() {
            let there = instruction.memory_displacement64().wrapping_add(self.bias);
            instruction.set_memory_displacement64(there);
        }
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let there = instruction.near_branch64().wrapping_add(self.bias);
            instruction.set_near_branch64(there);
        }
        instruction.set_ip(moved);
        let unwinding = self.unwinding(moved);
        let live = Set::of(&self.flow.live_before(address)) | unwinding;
        Ok(Member { instruction, live, unwinding, preserves })
    }

    /// Returns the register from which unwinders compute the frame address; all registers if it is
    /// computed in another way.
    fn unwinding(&self, address: u64) -> Set {
        let frame = self.body.procedures.frame(address);
        let own = frame.map_or(Set::general(u16::MAX), |(register, _)| Set::general(1 << register));
        own | self.landing(address)
    }

    /// Returns what is read where an exception lands that is thrown at an instruction: a fault may
    /// throw one (`-fnon-call-exceptions`).
    fn landing(&self, address: u64) -> Set {
        let parts = self.body.procedures.parts.iter();
        let data = parts.filter_map(|part| part.language_data.as_ref());
        let pads = data.filter_map(|data| data.site(address)?.pad);
        let live = pads.map(|pad| {
            let there = pad.wrapping_sub(self.bias);
            // The unwinder sets these two: the exception and its number.
            Set::of(&self.flow.live_before(there)).difference(Set::general(0b101))
        });
        live.fold(Set::NONE, |all, one| all | one)
    }

    /// Whether the function that is called follows the ABI. Functions that other files can call do;
    /// a function that only its own file calls may depart from it.
    fn preserves(&self, call: &Instruction) -> bool {
        let is_imported = imported(self.module.image(), call).is_some();
        match call.flow_control() {
            FlowControl::Call if call.op0_kind() == OpKind::NearBranch64 => {
                is_imported || self.is_exported(call.near_branch64())
            }
            FlowControl::IndirectCall => is_imported,
            _ => false,
        }
    }

    fn is_exported(&self, target: u64) -> bool {
        let id: Option<FunctionId> = self.module.function_at(target);
        id.map(|id| self.module.function(id)).is_some_and(|function| {
            function.entry == target && function.sources.contains(Sources::EXPORT)
        })
    }
}

/// Whether an instruction cannot run at another address: the kernel makes an interrupted system
/// call again by stepping back to it, a transaction aborts to where it began, and the address of a
/// trap tells what happened.
fn stays(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let traps = matches!(
        instruction.mnemonic(),
        M::Syscall
            | M::Sysenter
            | M::Int
            | M::Int1
            | M::Int3
            | M::Into
            | M::Ud0
            | M::Ud1
            | M::Ud2
            | M::Hlt
            | M::Xbegin
            | M::Xend
            | M::Xabort
    );
    // Far branches, and calls through the stack pointer.
    let flow = instruction.flow_control();
    let far = instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect()
        || instruction.is_call_far()
        || instruction.is_call_far_indirect();
    let through_stack =
        flow == FlowControl::IndirectCall && instruction.op0_register() == Register::RSP;
    traps || far || through_stack || flow == FlowControl::Interrupt
}

/// Returns the place at the entry of a function at which control can enter versions: behind the
/// mark of a target of indirect calls.
///
/// # Errors
/// [`NoVersion::NoCode`] or [`NoVersion::Uncopied`].
pub fn entry_site(place: &Place<'_>, module: &Module) -> Result<Site, NoVersion> {
    let entry = module.function(place.flow().function()).entry;
    let first = decode(module, entry).ok_or(NoVersion::NoCode { address: entry })?;
    let landing = first.mnemonic() == Mnemonic::Endbr64;
    let address = if landing { first.next_ip() } else { entry };
    place.site(address, At::Before, Vec::new()).map_err(|_| NoVersion::Uncopied)
}
