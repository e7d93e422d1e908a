//! A whole function, described for copying it.

use std::ops::Range;
use std::sync::Arc;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::procedures::Procedures;
use crate::relocate;
use crate::why::Why;

/// A function of a program that can be copied: all its jumps are understood.
#[derive(Clone, Debug)]
pub struct Body {
    /// Address at which calls enter it.
    pub entry: u64,
    /// Its ranges of code.
    pub parts: Vec<Part>,
    /// Addresses of its instructions, ascending. They may overlap. Bytes that belong to none of
    /// them are left alone.
    pub instructions: Vec<u64>,
    /// Addresses at which control may arrive other than by falling through from an instruction of
    /// the function or by a direct jump within it: its entry, the return addresses of its calls,
    /// the targets of jump tables, landing pads of exceptions, the targets of jumps in other
    /// functions, and every address of the function that is taken. Ascending.
    pub entered: Vec<u64>,
    /// The function as unwinders know it.
    pub procedures: Arc<Procedures>,
}

/// A range of a function's code, with the padding after it that belongs to no function.
#[derive(Clone, Debug)]
pub struct Part {
    /// Address in the program.
    pub address: u64,
    /// The bytes there.
    pub code: Vec<u8>,
    /// Addresses of padding, which never runs.
    pub unused: Vec<Range<u64>>,
}

impl Part {
    pub(crate) fn range(&self) -> Range<u64> {
        self.address..self.address + self.code.len() as u64
    }

    /// Returns `length` bytes from `address` on.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.code.get(at..at.checked_add(length)?)
    }
}

/// The treatment of an instruction in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Has the same effect at any address.
    Plain,
    /// A call: runs in place, or else pushes its return address and jumps.
    Call,
    /// Runs in place, as does the instruction after it: the kernel restarts an interrupted system
    /// call by stepping back to the instruction.
    System,
    /// Runs in place and never continues: the handler of its fault learns from its address where
    /// the fault happened.
    Stop,
}

/// An instruction of a function, and what a copy does with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) instruction: Instruction,
    pub(crate) kind: Kind,
}

impl Member {
    pub(crate) fn range(&self) -> Range<u64> {
        self.instruction.ip()..self.instruction.next_ip()
    }

    /// Returns its target if it is a direct jump.
    pub(crate) fn target(&self) -> Option<u64> {
        let flow = self.instruction.flow_control();
        let jumps =
            matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        jumps.then(|| self.instruction.near_branch_target())
    }

    /// Whether control may fall through to the next instruction, without a call in between.
    pub(crate) fn goes_on(&self) -> bool {
        self.kind == Kind::Plain && relocate::goes_on(&self.instruction)
    }

    pub(crate) fn is_landing(&self) -> bool {
        self.instruction.code() == Code::Endbr64
    }
}

impl Body {
    /// Returns `length` bytes of one of its parts.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.parts.iter().find_map(|part| part.bytes(address, length))
    }

    /// Whether the `length` bytes from an address on are padding, which never runs.
    pub(crate) fn is_unused(&self, address: u64, length: usize) -> bool {
        let mut unused = self.parts.iter().flat_map(|part| &part.unused);
        unused.any(|range| range.start <= address && address + length as u64 <= range.end)
    }

    /// Returns the bytes from an address to the end of the part.
    fn from(&self, address: u64) -> &[u8] {
        let part = self.parts.iter().find(|part| part.range().contains(&address));
        let code = part.and_then(|part| part.code.get((address - part.address) as usize..));
        code.unwrap_or_default()
    }

    /// Decodes its instructions and decides what a copy does with each.
    ///
    /// # Errors
    /// [`Why::NoCode`], [`Why::Fixed`]: an instruction that cannot run elsewhere.
    pub(crate) fn members(&self) -> Result<Vec<Member>, Why> {
        self.instructions.iter().map(|&address| self.member(address)).collect()
    }

    fn member(&self, address: u64) -> Result<Member, Why> {
        let none = || Why::NoCode { address };
        let bytes = self.from(address);
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return Err(none());
        }
        let kind = match instruction.mnemonic() {
            Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int => Kind::System,
            Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 | Mnemonic::Hlt => Kind::Stop,
            _ => match instruction.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => Kind::Call,
                _ => Kind::Plain,
            },
        };
        relocate::refuse_end_of_handler(&instruction, self.from(address))?;
        // The mark of a target stays in place too, and a copy has room to encode these jumps as
        // several instructions.
        let moves = instruction.code() == Code::Endbr64 || has_no_long_form(&instruction);
        if kind == Kind::Plain && !moves {
            relocate::refuse_fixed(&instruction)?;
        }
        Ok(Member { instruction, kind })
    }
}

/// Whether the instruction is `loop`, `jrcxz` or one like them: they reach 127 bytes, and are
/// encoded as several instructions if the target is further away.
pub(crate) fn has_no_long_form(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Loop
            | Mnemonic::Loope
            | Mnemonic::Loopne
            | Mnemonic::Jcxz
            | Mnemonic::Jecxz
            | Mnemonic::Jrcxz
    )
}
