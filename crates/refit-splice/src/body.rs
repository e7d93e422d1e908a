//! A whole function, as far as a copy of it needs to know.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::relocate;
use crate::why::Why;

/// A function of a program that can be copied. All its jumps are understood.
#[derive(Clone, Debug)]
pub struct Body {
    /// Where it is called.
    pub entry: u64,
    /// Its bytes.
    pub parts: Vec<Part>,
    /// Where its instructions begin, ascending. They may overlap. What is in none of them is left as it is.
    pub instructions: Vec<u64>,
    /// Where control may arrive otherwise than by going on from an instruction of it or by a direct jump of it: its
    /// entry, what calls return to, what tables of jumps and landing pads of exceptions tell, what others jump to, and whatever
    /// has its address taken. Ascending.
    pub entered: Vec<u64>,
}

/// A range of a function's bytes, and the padding behind it that belongs to nobody.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where in the program.
    pub address: u64,
    /// What stands there.
    pub code: Vec<u8>,
    /// Which of the bytes are never run, as addresses: padding.
    pub unused: Vec<Range<u64>>,
}

impl Part {
    pub(crate) fn range(&self) -> Range<u64> {
        self.address..self.address + self.code.len() as u64
    }

    /// Bytes of it.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.code.get(at..at.checked_add(length)?)
    }
}

/// What a copy does with an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Does the same elsewhere.
    Plain,
    /// A call: it runs at its place, or else pushes its return address and jumps.
    Call,
    /// Runs at its place, and what follows it, too: the kernel makes an interrupted call again by stepping back to it.
    System,
    /// Runs at its place and never goes on: what it faults with tells the handler where.
    Stop,
}

/// An instruction of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) instruction: Instruction,
    pub(crate) kind: Kind,
}

impl Member {
    pub(crate) fn range(&self) -> Range<u64> {
        self.instruction.ip()..self.instruction.next_ip()
    }

    /// Where it jumps to if it is a direct jump.
    pub(crate) fn target(&self) -> Option<u64> {
        let flow = self.instruction.flow_control();
        let jumps =
            matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        jumps.then(|| self.instruction.near_branch_target())
    }

    /// Whether the next instruction may follow it, without a call in between.
    pub(crate) fn goes_on(&self) -> bool {
        self.kind == Kind::Plain && relocate::goes_on(&self.instruction)
    }

    pub(crate) fn is_landing(&self) -> bool {
        self.instruction.code() == Code::Endbr64
    }
}

impl Body {
    /// Bytes of one of its parts.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.parts.iter().find_map(|part| part.bytes(address, length))
    }

    /// Whether so many bytes from an address on are padding, which nobody runs.
    pub(crate) fn is_unused(&self, address: u64, length: usize) -> bool {
        let mut unused = self.parts.iter().flat_map(|part| &part.unused);
        unused.any(|range| range.start <= address && address + length as u64 <= range.end)
    }

    /// The bytes from an address on up to the end of the part.
    fn from(&self, address: u64) -> &[u8] {
        let part = self.parts.iter().find(|part| part.range().contains(&address));
        let code = part.and_then(|part| part.code.get((address - part.address) as usize..));
        code.unwrap_or_default()
    }

    /// Its instructions, and what a copy does with each.
    ///
    /// # Errors
    /// [`Why::NoCode`], [`Why::Fixed`]: one that cannot run elsewhere.
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
        // What marks a target stays where it is too; and a copy has the room for jumps in several instructions.
        let moves = instruction.code() == Code::Endbr64 || has_no_long_form(&instruction);
        if kind == Kind::Plain && !moves {
            relocate::refuse_fixed(&instruction)?;
        }
        Ok(Member { instruction, kind })
    }
}

/// `loop` and `jrcxz` reach 127 bytes, and are encoded as several instructions where that is too near.
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
