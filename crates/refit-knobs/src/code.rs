//! The instructions of a function, with what each reads and writes, and where control goes.

use iced_x86::{
    ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, Register,
};
use refit_analysis::flow::Target;
use refit_analysis::registers::ARGUMENTS;
use refit_analysis::{Flow, FunctionId, Module};

/// Maximum number of instructions of a function that is looked at.
const MOST: usize = 50_000;
/// Registers that calls may change: rax, rcx, rdx, rsi, rdi, r8 to r11.
const CALLER_SAVED: u16 = 0x0fc7;
/// Registers with results: rax and rdx.
const RESULTS: u16 = 1 | 1 << 2;
const STACK: u16 = 1 << 4;

/// An instruction and its effects on general registers, as sets by their numbers.
#[derive(Clone, Debug)]
pub struct Step {
    /// The instruction, at its address in the file.
    pub instruction: Instruction,
    /// Where its immediate and its displacement are.
    pub offsets: ConstantOffsets,
    /// Registers that it reads; of a call, arguments that may be live.
    pub reads: u16,
    /// Registers that it overwrites wholly; of a call, those that callees may change.
    pub writes: u16,
    /// Registers that it changes in part, or perhaps.
    pub changes: u16,
    /// Registers that callees may change, and that are needed after the call nevertheless.
    pub crosses: u16,
    /// Whether control leaves the function there, other than by a call that returns.
    pub leaves: Option<Leaves>,
}

/// The way in which control leaves a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// By a return.
    Returns,
    /// By a jump to another function, whose arguments are in registers.
    Calls,
    /// To an unknown address.
    Unknown,
}

/// A function.
#[derive(Debug)]
pub struct Code<'m> {
    /// Its file.
    pub module: &'m Module,
    /// Its control flow.
    pub flow: Flow,
    /// Its instructions, by ascending address.
    pub steps: Vec<Step>,
    /// Indices of the instructions that may run next, by instruction.
    pub next: Vec<Vec<usize>>,
    /// Indices of those that may have run before.
    pub before: Vec<Vec<usize>>,
    /// Index of the block of each instruction.
    pub block: Vec<u32>,
}

impl<'m> Code<'m> {
    /// Reads a function; `None` if it is too large, or a part of it is not in the file.
    pub fn of(module: &'m Module, id: FunctionId) -> Option<Self> {
        let flow = module.flow(id);
        if flow.instructions().len() > MOST {
            return None;
        }
        let mut info = InstructionInfoFactory::new();
        let steps: Option<Vec<Step>> = flow
            .instructions()
            .iter()
            .map(|one| {
                let bytes = module.bytes(one.address, usize::from(one.length))?;
                let mut decoder = Decoder::with_ip(64, bytes, one.address, DecoderOptions::NONE);
                let instruction = decoder.decode();
                let offsets = decoder.get_constant_offsets(&instruction);
                Some(step(&mut info, instruction, offsets))
            })
            .collect();
        let steps = steps?;
        let count = steps.len();
        let mut code = Self {
            module,
            flow,
            steps,
            next: vec![Vec::new(); count],
            before: vec![Vec::new(); count],
            block: vec![0; count],
        };
        code.connect();
        code.call_effects();
        Some(code)
    }

    /// Returns the index of the instruction at an address of the file.
    pub fn at(&self, address: u64) -> Option<usize> {
        self.steps.binary_search_by_key(&address, |step| step.instruction.ip()).ok()
    }

    /// Returns the indices of the instructions of a block, in order.
    pub fn of_block(&self, block: u32) -> Vec<usize> {
        let Some(block) = self.flow.blocks().get(block as usize) else { return Vec::new() };
        let all = self.flow.block_instructions(block);
        all.filter_map(|one| self.at(one.address)).collect()
    }

    fn connect(&mut self) {
        for number in 0..self.flow.blocks().len() as u32 {
            let own = self.of_block(number);
            for pair in own.windows(2) {
                self.next[pair[0]].push(pair[1]);
            }
            for &at in &own {
                self.block[at] = number;
            }
            let Some(&last) = own.last() else { continue };
            for edge in self.flow.edges_from(number) {
                match edge.to {
                    Target::Block(to) => {
                        let first = self.flow.blocks().get(to as usize).map(|to| to.start);
                        let first = first.and_then(|address| self.at(address));
                        self.next[last].extend(first);
                    }
                    Target::Caller => self.steps[last].leaves = Some(Leaves::Returns),
                    Target::Function(_) | Target::Elsewhere => {
                        self.steps[last].leaves = Some(Leaves::Calls);
                    }
                    Target::Outside(_) | Target::Unknown => {
                        self.steps[last].leaves = Some(Leaves::Unknown);
                    }
                }
            }
        }
        for from in 0..self.next.len() {
            self.next[from].sort_unstable();
            self.next[from].dedup();
            for &to in &self.next[from] {
                self.before[to].push(from);
            }
        }
    }

    /// Adds what calls read and change, by what is live before and after them.
    fn call_effects(&mut self) {
        let arguments = ARGUMENTS.iter().fold(0, |set: u16, &number| set | 1 << number);
        for at in 0..self.steps.len() {
            let address = self.steps[at].instruction.ip();
            let live = self.flow.live_before(address).general;
            if self.steps[at].leaves == Some(Leaves::Calls) {
                self.steps[at].reads |= live & arguments;
            }
            if !is_call(&self.steps[at].instruction) {
                continue;
            }
            let mut after = 0;
            for &to in &self.next[at] {
                after |= self.flow.live_before(self.steps[to].instruction.ip()).general;
            }
            let crosses = after & CALLER_SAVED & !RESULTS;
            let step = &mut self.steps[at];
            step.reads |= live & arguments;
            step.crosses = crosses;
            step.writes |= CALLER_SAVED & !crosses;
        }
    }
}

/// Whether it calls a function.
pub fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
        && !matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter)
}

/// Returns the number of a general register, whatever part of it this is.
pub fn number(register: Register) -> Option<u8> {
    register.is_gpr().then(|| register.full_register().number() as u8)
}

/// Returns the set of a general register alone; the empty one for others.
pub fn set(register: Register) -> u16 {
    number(register).map_or(0, |number| 1 << number)
}

/// Returns the registers by which an instruction addresses memory.
pub fn addressing(instruction: &Instruction) -> u16 {
    let base = instruction.memory_base();
    if base.is_ip() { 0 } else { set(base) | set(instruction.memory_index()) }
}

fn step(
    info: &mut InstructionInfoFactory,
    instruction: Instruction,
    offsets: ConstantOffsets,
) -> Step {
    let used = info.info_options(&instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
    let (mut reads, mut writes, mut changes) = (0, 0, 0);
    for used in used.used_registers() {
        let (set, whole) = (set(used.register()), used.register().size() >= 4);
        match used.access() {
            OpAccess::Read | OpAccess::CondRead => reads |= set,
            OpAccess::ReadWrite if whole => {
                reads |= set;
                writes |= set;
            }
            OpAccess::Write if whole => writes |= set,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                reads |= set;
                changes |= set;
            }
            OpAccess::Write | OpAccess::CondWrite => changes |= set,
            OpAccess::None | OpAccess::NoMemAccess => {}
        }
    }
    let (reads, writes, changes) = (reads & !STACK, writes & !STACK, changes & !STACK);
    Step { instruction, offsets, reads, writes, changes, crosses: 0, leaves: None }
}
